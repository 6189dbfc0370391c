"""Set our figures of a paper's table beside the published ones."""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
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
  """One of our figures, as a part of 1 (or in per cent, of a gain).

  Attributes:
    sd: over seeds, None for one; half_width: 95 %, over questions, None of averages.
    parts: how many of the data sets of an average it covers.

  """

  mean: float
  sd: float | None
  half_width: float | None
  parts: int


class Figures:
  """Compute what the finished runs of a table come to.

  Attributes:
    own: rows whose figures stand beside the published ones.
    apart: (rows, what they stand for) of those that do not: several rows are one run, or its weights or
      data are not the row's.

  """

  def __init__(self, table: Table, plan: Plan, output: pathlib.Path, choice: Choice):
    self.table, self.plan, self.output, self.choice = table, plan, output, choice
    self.rows = {row.name: row for row in table.rows}
    same: dict[tuple, list[Row]] = {}
    for row in table.rows:
      runs = []
      for key in row.runs:
        if (row.name, key) in plan.cells:
          runs.append((key, *plan.folders((row.name, key), output)))
      same.setdefault(tuple(runs) or (row.name,), []).append(row)
    self.apart: list[tuple[list[Row], str]] = []
    self.own = set(self.rows)
    for rows in same.values():
      cells = [(row.name, key) for row in rows for key in row.runs]
      others = dict.fromkeys(plan.others[cell] for cell in cells if cell in plan.others)
      if len(rows) > 1 or others:
        self.apart.append((rows, "; ".join(others)))
        self.own -= {row.name for row in rows}
    for row in table.rows:
      if not set(row.gain_over) <= self.own:
        self.apart.append(([row], ""))
        self.own.discard(row.name)
    self._load = functools.cache(self._load)

  def scores(self, row: Row, key: str, column: Column) -> RunScores | None:
    """Return the values of every question of one run of a row, once all its seeds are finished."""
    loaded = self._load((row.name, key), column.split, column.question_filter)
    return loaded if loaded and column.metric in loaded.values else None

  def _load(self, cell: Cell, split: str, question_filter: str) -> RunScores | None:
    asked = {"split": split, "question_filter": question_filter}
    if files := self.choice.filled.get(cell):
      judge = self._finished_of(cell[1])
      return judge and run_scores.load([judge, ",".join(files)], **asked)[1]
    jobs = self.plan.cells.get(cell, ())
    folders = self.plan.folders(cell, self.output)
    if not jobs or not all(map(finished, folders)):
      return None
    content = results.read(folders[0])
    metric = run_scores.KEYS[content["task"]][0]
    if f"{metric}[{content['data']['name']}-{question_filter}/{split}]" not in content["metrics"]:
      return None
    runs = run_scores.load(list(map(str, folders)), **asked)
    if cell in self.plan.taken:
      return dataclasses.replace(runs[0], name=cell[0])
    return sweep_table.one_system(cell[0], jobs, runs)

  def _finished_of(self, key: str) -> str | None:
    """Return a finished run on the data of `key`, whose judgements measure run files."""
    for cell in self.plan.cells:
      for folder in self.plan.folders(cell, self.output):
        if cell[1] == key and finished(folder):
          return str(folder)
    return None

  def figure(self, row: Row, column: Column) -> Figure | None:
    """Return what the finished runs of a row come to in a column; None where there are none.

    A gain is relative, in per cent, over the data sets that both rows have.
    """
    if not row.gain_over:
      parts = self._parts(row, column)
      return parts.get(column.runs[0]) if len(column.runs) == 1 else _average(parts, parts)
    base, ours = (self._parts(self.rows[name], column) for name in row.gain_over)
    base, ours = _average(base, ours), _average(ours, base)
    if not base or not base.mean:
      return None
    return ours._replace(mean=100 * (ours.mean - base.mean) / base.mean)

  def _parts(self, row: Row, column: Column) -> dict[str, Figure]:
    figures = {}
    for key in column.runs:
      if scores := self.scores(row, key, column):
        values = scores.metric(column.metric)
        figures[key] = Figure(*mean_sd(values.mean(1)), half_width(values), 1)
    return figures

  def cells(self) -> list[list[str]]:
    """Return a head and a row of texts a row of the table; then a line for each that stands apart."""
    lines = [["", *(cell for column in self.table.columns for cell in (column.heading, "paper"))]]
    for row in self.table.rows:
      lines.append(self._line(row.name, row, ours=row.name in self.own, published=row.published))
    for rows, _ in self.apart:
      name = " = ".join(row.name for row in rows)
      blank = (None,) * len(self.table.columns)
      line = self._line(f"ours: {name}", rows[0], ours=True, published=blank)
      if set(line[1:]) - {"–", ""}:
        lines.append(line)
    return lines

  def _line(self, name: str, row: Row, *, ours: bool, published: Sequence) -> list[str]:
    scale = 1 if row.gain_over else self.table.scale
    percent = bool(row.gain_over) or self.table.scale == 100
    digits = 2 if percent else 4
    line = [name]
    for column, theirs in zip(self.table.columns, published, strict=True):
      figure = self.figure(row, column) if ours else None
      cell = "–"
      if figure:
        cell = f"{scale * figure.mean:.{digits}f}"
        if figure.sd is not None:
          cell += f" ({scale * figure.sd:.{digits}f})"
        if figure.half_width is not None:
          cell += f" ± {scale * figure.half_width:.{digits}f}"
      line += [cell, _theirs(theirs, percent)]
    return line

  def notes(self) -> list[str]:
    """Say of rows: other weights, one seed, nothing gained by training, run files, parts of an average."""
    lines = []
    for rows, others in self.apart:
      names = ", ".join(row.name for row in rows)
      one = f"{names} are one run here" if len(rows) > 1 else names
      why = f"not the paper's ({others})" if others else "not set beside the published figures"
      lines.append(f"{one}: {why}")
    for row, key in self.choice.filled:
      if self._finished_of(key) is None:
        why = "its run file is not measured, as no run on these data is finished here"
        lines.append(f"{row} · {key}: {why}")
    first = {column.runs[0]: column for column in reversed(self.table.columns)}
    for row in self.table.rows:
      for key, column in first.items():
        scores = self.scores(row, key, column)
        if scores is None:
          continue
        title = f"{row.name} · {key}" if len(first) > 1 else row.name
        if scores.note:
          lines.append(f"{title}: {scores.note}")
        if len(scores.metric(column.metric)) == 1 and not scores.deterministic:
          lines.append(f"{title}: one seed: whether the method differs from another {ONE_SEED}")
        if (row.name, key) in self.plan.taken:
          lines.append(f"{title}: the finished run {self.plan.taken[row.name, key].name}")
        if (row.name, key) in self.choice.filled:
          lines.append(f"{title}: measured from a run file of a system from elsewhere")
      for column in self.table.columns[:1]:
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
          sides = [self.scores(self.rows[name], key, column) for name in pair]
          if all(sides):
            groups.append(sides)
        if groups and len(column.runs) == 1:
          lines += [compare.as_text(compare.compare(groups[0], [column.metric], **options)), ""]
        elif groups:
          rows = compare.compare_groups(groups, [column.metric], **options)
          lines += [compare.groups_as_text(rows), ""]
    title = "the paper's claims, each row after the one that it is said to improve:"
    return ["", title, "", *lines[:-1]] if lines else []


def write(
  table: Table, plan: Plan, output: pathlib.Path, choice: Choice, failed: Mapping[str, str]
) -> str:
  """Write <table>.txt, .md, .tex, .html and .csv into `output`; return the text."""
  measured = Figures(table, plan, output, choice)
  settings = ", ".join(f"{key}={value}" for key, value in choice.settings.items())
  notes = []
  if choice.words:
    words = ",".join(choice.words)
    notes.append(f"not the paper's: every config that takes it was run with {words}")
  if settings:
    notes.append(f"not the paper's: {settings}")
  notes += [*measured.notes(), *_left_out(plan, output, failed)]
  done = _finished(plan, output)
  notes += [*sweep_table.tests_seen(done), *sweep_table.seen_by(done), *measured.tests()]
  heading = f"{table.title}\n{LEGEND}"
  return sweep_table.write_forms(output / table.name, heading, measured.cells(), notes, left=1)


def _finished(plan: Plan, output: pathlib.Path) -> list[pathlib.Path]:
  """Return the folders of the finished runs of a table, each once."""
  done: dict[pathlib.Path, None] = {}
  for cell in plan.cells:
    for folder in plan.folders(cell, output):
      if finished(folder):
        done[folder] = None
  return list(done)


def _average(parts: Mapping[str, Figure], shared: Mapping[str, Figure]) -> Figure | None:
  """Return the mean over the data sets that are in `shared`, too."""
  means = [parts[key].mean for key in parts if key in shared]
  return Figure(sum(means) / len(means), None, None, len(means)) if means else None


def _theirs(published: float | None, percent: bool) -> str:
  """Format a published figure in the digits of its publication."""
  if published is None:
    return ""
  if percent:
    return f"{published:.2f}"
  return f"{published:.3f}" if round(published, 3) == published else f"{published:.4f}"


def _left_out(plan: Plan, output: pathlib.Path, failed: Mapping[str, str]) -> list[str]:
  """List rows without figures: skipped and why (one line a reason), failed, or not run yet."""
  reasons: dict[str, list[str]] = {}
  for cell, reason in plan.skipped.items():
    reasons.setdefault(reason, []).append(title_of(cell))
  notes = [f"skipped: {', '.join(cells)}: {reason}" for reason, cells in reasons.items()]
  for cell, jobs in plan.cells.items():
    left = []
    for job in jobs if cell not in plan.taken else ():
      if job.id in failed:
        notes.append(f"failed: {title_of(cell)}, seed {job.seed} ({job.id}): {failed[job.id]}")
      elif not finished(output / job.id):
        left.append(str(job.seed))
    if left:
      notes.append(f"not run yet: {title_of(cell)}, seed {', '.join(left)}")
  return notes


def title_of(cell: Cell) -> str:
  """Return how a cell is called in lines of text."""
  return " · ".join(filter(None, cell))
