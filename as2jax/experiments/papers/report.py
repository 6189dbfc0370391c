"""Set our figures of a paper's table beside the published ones."""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from as2jax.evaluation import compare, results, run_scores
from as2jax.evaluation.run_scores import RunScores
from as2jax.evaluation.significance import ONE_SEED, half_width, mean_sd
from as2jax.experiments.papers.plan import Cell, Choice, Plan
from as2jax.experiments.papers.rows import Column, Row, Table
from as2jax.experiments.sweeps import table as sweep_table
from as2jax.experiments.sweeps.local_executor import finished

LEGEND = "ours: mean (s.d. over seeds) ± 95 % half-width over questions; paper: as published"


class Figure(NamedTuple):
  """One of our figures, as a part of 1.

  Attributes:
    sd: over seeds, None for one; half_width: 95 %, over questions, None of averages.
    parts: how many of the data sets of an average it covers.

  """

  mean: float
  sd: float | None
  half_width: float | None
  parts: int


class Figures:
  """Compute what the finished runs of a table come to."""

  def __init__(self, table: Table, plan: Plan, output: pathlib.Path):
    self.table, self.plan, self.output = table, plan, output
    self._load = functools.cache(self._load)

  def scores(self, row: str, key: str, column: Column) -> RunScores | None:
    """Return the values of every question of one run of a row, once all its seeds are finished."""
    loaded = self._load((row, key), column.split, column.question_filter)
    return loaded if loaded and column.metric in loaded.values else None

  def _load(self, cell: Cell, split: str, question_filter: str) -> RunScores | None:
    jobs = self.plan.cells.get(cell, ())
    folders = self.plan.folders(cell, self.output)
    if not jobs or not all(map(finished, folders)):
      return None
    content = results.read(folders[0])
    metric = run_scores.KEYS[content["task"]][0]
    if f"{metric}[{content['data']['name']}-{question_filter}/{split}]" not in content["metrics"]:
      return None
    runs = run_scores.load(list(map(str, folders)), split=split, question_filter=question_filter)
    if cell in self.plan.taken:
      return dataclasses.replace(runs[0], name=cell[0])
    return sweep_table.one_system(cell[0], jobs, runs)

  def figure(self, row: Row, column: Column) -> Figure | None:
    """Return what the finished runs of a row come to in a column; None where there are none."""
    figures = []
    for key in column.runs:
      if scores := self.scores(row.name, key, column):
        values = scores.metric(column.metric)
        figures.append(Figure(*mean_sd(values.mean(1)), half_width(values), 1))
    if len(column.runs) == 1 or not figures:
      return figures[0] if figures else None
    return Figure(sum(one.mean for one in figures) / len(figures), None, None, len(figures))

  def cells(self) -> list[list[str]]:
    """Return a head and a row of texts a row; figures of other weights or data have a line of their own."""
    head = [""]
    for column in self.table.columns:
      head += [column.heading, "paper"]
    lines = [head]
    for row in self.table.rows:
      figures = [self._shown(self.figure(row, column)) for column in self.table.columns]
      published = [self._published(figure) for figure in row.published]
      if any((row.name, key) in self.plan.others for key in row.runs):
        lines.append([row.name, *_alternating(["–"] * len(figures), published)])
        if set(figures) != {"–"}:
          lines.append([f"ours: {row.name}", *_alternating(figures, [""] * len(figures))])
      else:
        lines.append([row.name, *_alternating(figures, published)])
    return lines

  def _shown(self, figure: Figure | None) -> str:
    if figure is None:
      return "–"
    scale, digits = self.table.scale, 2 if self.table.scale == 100 else 4
    cell = f"{scale * figure.mean:.{digits}f}"
    if figure.sd is not None:
      cell += f" ({scale * figure.sd:.{digits}f})"
    if figure.half_width is not None:
      cell += f" ± {scale * figure.half_width:.{digits}f}"
    return cell

  def _published(self, figure: float | None) -> str:
    """Format a published figure in the digits of its publication."""
    if figure is None:
      return ""
    if self.table.scale == 100 or figure > 1:
      return f"{figure:.2f}"
    return f"{figure:.3f}" if round(figure, 3) == figure else f"{figure:.4f}"

  def notes(self) -> list[str]:
    """Say of rows: other weights, one seed, nothing gained by training, parts of an average."""
    lines = []
    first = {column.runs[0]: column for column in reversed(self.table.columns)}
    for row in self.table.rows:
      for key in row.runs:
        if (row.name, key) in self.plan.others:
          lines.append(f"{row.name} · {key}: not the paper's ({self.plan.others[row.name, key]})")
      for key, column in first.items():
        scores = self.scores(row.name, key, column)
        if scores is None:
          continue
        title = f"{row.name} · {key}"
        if scores.note:
          lines.append(f"{title}: {scores.note}")
        if len(scores.metric(column.metric)) == 1 and not scores.deterministic:
          lines.append(f"{title}: one seed: whether the method differs from another {ONE_SEED}")
        if (row.name, key) in self.plan.taken:
          lines.append(f"{title}: the finished run {self.plan.taken[row.name, key].name}")
      column = self.table.columns[0]
      figure = self.figure(row, column)
      if figure and figure.parts < len(column.runs):
        lines.append(f"{row.name}: over {figure.parts} of {len(column.runs)} data sets")
    return lines

  def tests(self) -> list[str]:
    """Test the paper's claims with our runs: of these models and of the methods."""
    lines = []
    options = {"samples": sweep_table.SAMPLES, "seed": 0}
    for pair in self.table.claims:
      for column in self.table.columns:
        groups = []
        for key in column.runs:
          sides = [self.scores(name, key, column) for name in pair]
          if all(sides):
            groups.append(sides)
        if groups and len(column.runs) == 1:
          lines += ["", compare.as_text(compare.compare(groups[0], [column.metric], **options))]
        elif groups:
          rows = compare.compare_groups(groups, [column.metric], **options)
          lines += ["", compare.as_text(rows)]
    if lines:
      lines[:0] = ["", "the paper's claims, each row after the one that it is said to improve:"]
    return lines


def _alternating(ours: list[str], published: list[str]) -> list[str]:
  cells = []
  for pair in zip(ours, published, strict=True):
    cells += pair
  return cells


def write(
  table: Table, plan: Plan, output: pathlib.Path, choice: Choice, failed: Mapping[str, str]
) -> str:
  """Write <table>.txt, .md, .tex, .html and .csv into `output`; return the text."""
  measured = Figures(table, plan, output)
  notes = []
  if choice.words:
    words = ",".join(choice.words)
    notes.append(f"not the paper's: every config that takes it was run with {words}")
  if choice.settings:
    settings = ", ".join(f"{key}={value}" for key, value in choice.settings.items())
    notes.append(f"not the paper's: {settings}")
  notes += [*measured.notes(), *_left_out(plan, output, failed)]
  folders = [folder for cell in plan.cells for folder in plan.folders(cell, output)]
  done = list(dict.fromkeys(filter(finished, folders)))
  notes += [*sweep_table.tests_seen(done), *sweep_table.seen_by(done), *measured.tests()]
  heading = f"{table.title}\n{LEGEND}"
  return sweep_table.write_forms(output / table.name, heading, measured.cells(), notes, left=1)


def _left_out(plan: Plan, output: pathlib.Path, failed: Mapping[str, str]) -> list[str]:
  """List rows without figures: skipped and why, failed, or not run yet."""
  notes = [f"skipped: {title_of(cell)}: {reason}" for cell, reason in plan.skipped.items()]
  for cell, jobs in plan.cells.items():
    for job in jobs if cell not in plan.taken else ():
      title = f"{title_of(cell)}, seed {job.seed}"
      if job.id in failed:
        notes.append(f"failed: {title} ({job.id}): {failed[job.id]}")
      elif not finished(output / job.id):
        notes.append(f"not run yet: {title}")
  return notes


def title_of(cell: Cell) -> str:
  """Return how a cell is called in lines of text."""
  return " · ".join(filter(None, cell))
