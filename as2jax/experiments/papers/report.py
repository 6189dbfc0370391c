"""Set our figures of a paper's table beside the published ones, as text, Markdown, LaTeX, CSV and HTML."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from as2jax.evaluation import compare, results, run_scores
from as2jax.evaluation.run_scores import RunScores
from as2jax.evaluation.significance import ONE_SEED, half_width, mean_sd
from as2jax.evaluation.tables import FORMATS, render
from as2jax.experiments.papers.plan import Choice, Plan
from as2jax.experiments.papers.rows import Column, Row, Table
from as2jax.experiments.sweeps import table as sweep_table
from as2jax.experiments.sweeps.local_executor import finished
from as2jax.runtime.files import write_whole

LEGEND = "ours: mean (s.d. over seeds) ± 95 % half-width over questions; paper: as published"


@dataclasses.dataclass(frozen=True)
class Figure:
  """One of our figures, as a part of 1 (or in per cent, of a gain).

  Attributes:
    sd: over seeds, None for one; half_width: 95 %, over questions, None of averages.
    parts: how many of the data sets of an average it covers.

  """

  mean: float
  sd: float | None
  half_width: float | None
  seeds: int
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
      runs: list[Any] = []
      for key in row.runs:
        if (row.name, key) in plan.cells:
          runs.append((key, *plan.folders((row.name, key), output)))
      same.setdefault(tuple(runs) or (row.name,), []).append(row)
    self.apart: list[tuple[list[Row], str]] = []
    self.own = set(self.rows)
    for rows in same.values():
      others: dict[str, None] = {}
      for row in rows:
        for key in row.runs:
          if (row.name, key) in plan.others:
            others[plan.others[row.name, key]] = None
      if len(rows) > 1 or others:
        self.apart.append((rows, "; ".join(others)))
        self.own -= {row.name for row in rows}
    for row in table.rows:
      if not set(row.gain_over) <= self.own:
        self.apart.append(([row], ""))
        self.own.discard(row.name)
    self._loaded: dict[tuple, RunScores | None] = {}

  def scores(self, row: Row, key: str, column: Column) -> RunScores | None:
    """Return the values of every question of one run of a row, once all its seeds are finished."""
    place = row.name, key, column.split, column.question_filter
    if place not in self._loaded:
      self._loaded[place] = self._load(row, key, column)
    loaded = self._loaded[place]
    return loaded if loaded and column.metric in loaded.values else None

  def _load(self, row: Row, key: str, column: Column) -> RunScores | None:
    asked = {"split": column.split, "question_filter": column.question_filter}
    if files := self.choice.filled.get((row.name, key)):
      judge = self._finished_of(key)
      return judge and run_scores.load([judge, ",".join(files)], **asked)[1]
    jobs = self.plan.cells.get((row.name, key), ())
    folders = self.plan.folders((row.name, key), self.output)
    if not jobs or not all(map(finished, folders)):
      return None
    content = results.read(folders[0])
    task = content["task"]
    metric = run_scores.KEYS[task][0]
    name = f"{metric}[{content['data']['name']}-{column.question_filter}/{column.split}]"
    if name not in content["metrics"]:
      return None
    runs = run_scores.load(list(map(str, folders)), **asked)
    if (row.name, key) in self.plan.taken:
      return dataclasses.replace(runs[0], name=row.name)
    return sweep_table.one_system(row.name, jobs, runs)

  def _finished_of(self, key: str) -> str | None:
    """Return a finished run on the data of `key`, whose judgements measure run files."""
    for cell in self.plan.cells:
      for folder in self.plan.folders(cell, self.output):
        if cell[1] == key and finished(folder):
          return str(folder)
    return None

  def figure(self, row: Row, column: Column) -> Figure | None:
    """Return what the finished runs of a row come to in a column; None where there are none."""
    if row.gain_over:
      return self._gain(row, column)
    parts = self._parts(row, column)
    return parts.get(column.runs[0]) if len(column.runs) == 1 else _average(parts)

  def _parts(self, row: Row, column: Column) -> dict[str, Figure]:
    figures = {}
    for key in column.runs:
      if scores := self.scores(row, key, column):
        values = scores.metric(column.metric)
        mean, sd = mean_sd(values.mean(1))
        figures[key] = Figure(mean, sd, half_width(values), len(values), 1)
    return figures

  def _gain(self, row: Row, column: Column) -> Figure | None:
    """Return the relative gain in per cent, over the data sets that both rows have."""
    by_row = [self._parts(self.rows[name], column) for name in row.gain_over]
    shared = by_row[0].keys() & by_row[1].keys()
    base, ours = (_average({key: parts[key] for key in shared}) for parts in by_row)
    if not base or not base.mean:
      return None
    return dataclasses.replace(ours, mean=100 * (ours.mean - base.mean) / base.mean)

  def notes(self) -> list[str]:
    """Say of rows: other weights, one seed, nothing gained by training, run files."""
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
        lines += [f"{title}: {scores.note}"] * bool(scores.note)
        if len(scores.metric(column.metric)) == 1 and not scores.deterministic:
          lines.append(f"{title}: one seed: whether the method differs from another {ONE_SEED}")
        if (row.name, key) in self.plan.taken:
          lines.append(f"{title}: the finished run {self.plan.taken[row.name, key].name}")
        if (row.name, key) in self.choice.filled:
          lines.append(f"{title}: measured from a run file of a system from elsewhere")
    return lines

  def tests(self) -> list[str]:
    """Test the paper's claims with our runs: of these models and of the methods."""
    lines = []
    for pair in self.table.claims:
      for column in self.table.columns:
        sides = [
          {k: s for k in column.runs if (s := self.scores(self.rows[n], k, column))} for n in pair
        ]
        shared = [key for key in column.runs if key in sides[0] and key in sides[1]]
        if not shared:
          continue
        groups = [[side[key] for side in sides] for key in shared]
        options = {"samples": sweep_table.SAMPLES, "seed": 0}
        if len(column.runs) == 1:
          lines += [compare.as_text(compare.compare(groups[0], [column.metric], **options)), ""]
        else:
          rows = compare.compare_groups(groups, [column.metric], **options)
          lines += [compare.groups_as_text(rows), ""]
    title = "the paper's claims, each row after the one that it is said to improve:"
    return [title, "", *lines[:-1]] if lines else []


def write(
  table: Table, plan: Plan, output: pathlib.Path, choice: Choice, failed: Mapping[str, str]
) -> str:
  """Write <table>.txt, .md, .tex, .html and all figures as .csv into `output`; return the text."""
  measured = Figures(table, plan, output, choice)
  figures = {}
  for row in table.rows:
    for column in table.columns:
      if figure := measured.figure(row, column):
        figures[row.name, column.heading] = figure
  cells = _cells(table, figures, measured)
  notes = [*_changed(choice), *measured.notes(), *_partial(table, figures)]
  notes += _left_out(table, plan, output, failed)
  done = _finished(plan, output)
  notes += [*sweep_table.tests_seen(done), *sweep_table.seen_by(done)]
  tests = measured.tests()
  text = "\n".join([table.title, LEGEND, render(cells), "", *notes, "", *tests]).rstrip()
  for form, suffix in FORMATS.items():
    content = render(cells, form, caption=f"{table.title}. {LEGEND}")
    if form == "text":
      content = text
    elif form == "csv":
      content = render(_flat(table, figures, measured), "csv")
    elif form == "markdown":
      listed = [f"- {note}" for note in notes]
      content = "\n".join([f"**{table.title}**", "", LEGEND, "", content, "", *listed])
    write_whole(output / f"{table.name}{suffix}", content + "\n")
  return text


def _finished(plan: Plan, output: pathlib.Path) -> dict[pathlib.Path, str]:
  """Return the finished runs of a table: folder -> the first cell that it fills, with its seed."""
  done: dict[pathlib.Path, str] = {}
  for cell, jobs in plan.cells.items():
    titles = [job.title for job in jobs]
    if cell in plan.taken:
      titles = [titles[0].rpartition(", seed ")[0]]
    for folder, title in zip(plan.folders(cell, output), titles, strict=True):
      if finished(folder):
        done.setdefault(folder, title)
  return done


def _average(parts: Mapping[str, Figure]) -> Figure | None:
  if not parts:
    return None
  return Figure(
    sum(part.mean for part in parts.values()) / len(parts),
    None,
    None,
    min(part.seeds for part in parts.values()),
    len(parts),
  )


def _cells(
  table: Table, figures: Mapping[tuple[str, str], Figure], measured: Figures
) -> list[list[str]]:
  cells = [["", *(cell for column in table.columns for cell in (column.heading, "paper"))]]
  for row in table.rows:
    ours = figures if row.name in measured.own else {}
    cells.append(_line(row.name, row, table, ours, row.published))
  for rows, _ in measured.apart:
    if any((rows[0].name, column.heading) in figures for column in table.columns):
      name = " = ".join(row.name for row in rows)
      blank = (None,) * len(table.columns)
      cells.append(_line(f"ours: {name}", rows[0], table, figures, blank))
  return cells


def _line(name: str, row: Row, table: Table, figures, published) -> list[str]:
  scale = 1 if row.gain_over else table.scale
  percent = bool(row.gain_over) or table.scale == 100
  line = [name]
  for column, theirs in zip(table.columns, published, strict=True):
    line += [
      _ours(figures.get((row.name, column.heading)), scale, percent),
      _theirs(theirs, percent),
    ]
  return line


def _ours(figure: Figure | None, scale: int, percent: bool) -> str:
  if figure is None:
    return "–"
  shown = lambda value: f"{scale * value:.{2 if percent else 4}f}"
  spread = f" ({shown(figure.sd)})" if figure.sd is not None else ""
  width = f" ± {shown(figure.half_width)}" if figure.half_width is not None else ""
  return shown(figure.mean) + spread + width


def _theirs(published: float | None, percent: bool) -> str:
  """Format a published figure in the digits of its publication."""
  if published is None:
    return ""
  if percent:
    return f"{published:.2f}"
  return f"{published:.3f}" if round(published, 3) == published else f"{published:.4f}"


def _changed(choice: Choice) -> list[str]:
  """Say what the command changed against the paper."""
  notes = []
  if choice.words:
    notes.append(
      f"not the paper's: every config that takes it was run with {','.join(choice.words)}"
    )
  if choice.settings:
    settings = ", ".join(f"{key}={value}" for key, value in choice.settings.items())
    notes.append(f"not the paper's: {settings}")
  return notes


def _partial(table: Table, figures: Mapping[tuple[str, str], Figure]) -> list[str]:
  notes = []
  for row in table.rows:
    for column in table.columns[:1]:
      figure = figures.get((row.name, column.heading))
      if figure and figure.parts < len(column.runs):
        notes.append(f"{row.name}: over {figure.parts} of {len(column.runs)} data sets")
  return notes


def _left_out(
  table: Table, plan: Plan, output: pathlib.Path, failed: Mapping[str, str]
) -> list[str]:
  """List rows without figures: skipped and why (one line a reason), failed, or not run yet."""
  reasons: dict[str, list[str]] = {}
  title = lambda cell: " · ".join(filter(None, cell))
  for cell, reason in plan.skipped.items():
    reasons.setdefault(reason, []).append(title(cell))
  notes = [f"skipped: {', '.join(cells)}: {reason}" for reason, cells in reasons.items()]
  for cell, jobs in plan.cells.items():
    if cell in plan.taken:
      continue
    for job in jobs:
      if job.id in failed:
        notes.append(f"failed: {title(cell)}, seed {job.seed} ({job.id}): {failed[job.id]}")
    left = [job.seed for job in jobs if job.id not in failed and not finished(output / job.id)]
    if left:
      notes.append(f"not run yet: {title(cell)}, seed {', '.join(map(str, left))}")
  return notes


def _flat(
  table: Table, figures: Mapping[tuple[str, str], Figure], measured: Figures
) -> list[dict[str, Any]]:
  """Return every figure: ours in the paper's units, and the published one with its source.

  `apart` is what a row reads in place of its own weights and data, or the rows that are one run.
  """
  apart = {
    row.name: others or "one run of several rows" for rows, others in measured.apart for row in rows
  }
  flat = []
  for row in table.rows:
    scale = 1 if row.gain_over else table.scale
    scaled = lambda value: None if value is None else scale * value
    for column, published in zip(table.columns, row.published, strict=True):
      figure = figures.get((row.name, column.heading))
      values = (None,) * 4
      if figure:
        values = (scaled(figure.mean), scaled(figure.sd), scaled(figure.half_width), figure.seeds)
      ours = dict(zip(("ours", "sd", "half_width", "seeds"), values, strict=True))
      flat.append(
        {
          "row": row.name,
          "column": column.heading,
          **ours,
          "published": None if row.name in apart else published,
          "source": table.title,
          "apart": apart.get(row.name),
        }
      )
  return flat
