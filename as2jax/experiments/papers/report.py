"""A table of a paper with our figures beside the published ones, as text, Markdown and CSV."""

import csv
import dataclasses
import io
import json
import pathlib
from collections.abc import Mapping, Sequence

from as2jax.evaluation import compare
from as2jax.evaluation.significance import mean_sd
from as2jax.experiments.papers.plan import Choice, Plan, Table
from as2jax.experiments.papers.rows import Column, Row
from as2jax.experiments.sweeps import table as sweep_table
from as2jax.experiments.sweeps.local_executor import finished
from as2jax.runtime.files import write_whole


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


def write(
  table: Table, plan: Plan, output: pathlib.Path, choice: Choice, failed: Mapping[str, str]
) -> str:
  """Writes <table>.txt, .md and .csv into `output`; returns the text."""
  figures = {
    (row.name, column.heading): found
    for row in table.rows
    for column in table.columns
    if (found := _figure(row, column, table, plan, output))
  }
  cells = _cells(table, figures)
  heading = (
    f"{table.title}\nours: mean (s.d. over seeds) ± 95 % half-width over questions; "
    "paper: as published"
  )
  notes = [*_changed(choice), *_partial(table, figures), *_left_out(table, plan, output, failed)]
  jobs = {job.id: job for its in plan.cells.values() for job in its if finished(output / job.id)}
  notes += sweep_table.seen_by(output, jobs.values())
  text = "\n".join([heading, *compare.aligned(cells), "", *notes]).rstrip()
  write_whole(output / f"{table.name}.txt", text + "\n")
  marked = [
    f"**{table.title}**",
    "",
    heading.partition("\n")[2],
    "",
    *sweep_table.markdown(cells, left=1),
    "",
    *(f"- {note}" for note in notes),
  ]
  write_whole(output / f"{table.name}.md", "\n".join(marked) + "\n")
  write_whole(output / f"{table.name}.csv", _csv(table, figures))
  return text


def _figure(
  row: Row, column: Column, table: Table, plan: Plan, output: pathlib.Path
) -> Figure | None:
  """What the finished runs of a row come to in a column; None where there are none."""
  if row.gain_over:
    return _gain(row, column, table, plan, output)
  found = {key: part for key in column.runs if (part := _part(row, key, column, plan, output))}
  if len(column.runs) == 1:
    return found.get(column.runs[0])
  return _average(found)


def _part(row: Row, key: str, column: Column, plan: Plan, output: pathlib.Path) -> Figure | None:
  """The figure of one run of a row, over its seeds, once all of them are finished."""
  jobs = plan.cells.get((row.name, key), ())
  if not jobs or not all(finished(output / job.id) for job in jobs):
    return None
  entries = []
  for job in jobs:
    content = json.loads((output / job.id / "results.json").read_text())
    name = f"{column.metric}[{content['data']['name']}-{column.question_filter}/{column.split}]"
    if name not in content["metrics"]:
      return None
    entries.append(content["metrics"][name])
  mean, sd = mean_sd([entry["mean"] for entry in entries])
  widths = [entry["half_width"] for entry in entries if entry["half_width"] is not None]
  return Figure(mean, sd, max(widths, default=None), len(jobs), 1)


def _average(found: Mapping[str, Figure]) -> Figure | None:
  if not found:
    return None
  return Figure(
    sum(part.mean for part in found.values()) / len(found),
    None,
    None,
    min(part.seeds for part in found.values()),
    len(found),
  )


def _gain(
  row: Row, column: Column, table: Table, plan: Plan, output: pathlib.Path
) -> Figure | None:
  """The relative gain in per cent, over the data sets that both rows have."""
  rows = {other.name: other for other in table.rows}
  found = [
    {key: part for key in column.runs if (part := _part(rows[name], key, column, plan, output))}
    for name in row.gain_over
  ]
  shared = found[0].keys() & found[1].keys()
  base, ours = (_average({key: parts[key] for key in shared}) for parts in found)
  if not base or not base.mean:
    return None
  return dataclasses.replace(ours, mean=100 * (ours.mean - base.mean) / base.mean)


def _cells(table: Table, figures: Mapping[tuple[str, str], Figure]) -> list[list[str]]:
  cells = [["", *(cell for column in table.columns for cell in (column.heading, "paper"))]]
  for row in table.rows:
    scale = 1 if row.gain_over else table.scale
    percent = bool(row.gain_over) or table.scale == 100
    line = [row.name]
    for column, published in zip(table.columns, row.published, strict=True):
      line += [
        _ours(figures.get((row.name, column.heading)), scale, percent),
        _theirs(published, percent),
      ]
    cells.append(line)
  return cells


def _ours(figure: Figure | None, scale: int, percent: bool) -> str:
  if figure is None:
    return "–"
  shown = lambda value: f"{scale * value:.{2 if percent else 4}f}"
  spread = f" ({shown(figure.sd)})" if figure.sd is not None else ""
  width = f" ± {shown(figure.half_width)}" if figure.half_width is not None else ""
  return shown(figure.mean) + spread + width


def _theirs(published: float | None, percent: bool) -> str:
  """A published figure in the digits that it was published in, or its table's."""
  if published is None:
    return ""
  if percent:
    return f"{published:.2f}"
  return f"{published:.3f}" if round(published, 3) == published else f"{published:.4f}"


def _changed(choice: Choice) -> list[str]:
  """What is not as in the paper by the command's own wish."""
  notes = []
  if choice.words:
    notes.append(
      f"not the paper's: every config that takes it was run with "
      f"{','.join(choice.words)}, so rows of different encoders may be one run"
    )
  if choice.settings:
    given = ", ".join(f"{key}={value}" for key, value in choice.settings.items())
    notes.append(f"not the paper's: {given}")
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
  """Rows without figures: skipped and why (one line a reason), failed, or not run yet."""
  reasons: dict[str, list[str]] = {}
  title = lambda cell: " · ".join(filter(None, cell))
  for cell, reason in plan.skipped.items():
    reasons.setdefault(reason, []).append(title(cell))
  notes = [f"skipped: {', '.join(cells)}: {reason}" for reason, cells in reasons.items()]
  for cell, jobs in plan.cells.items():
    for job in jobs:
      if job.id in failed:
        notes.append(f"failed: {title(cell)}, seed {job.seed} ({job.id}): {failed[job.id]}")
    left = [job.seed for job in jobs if job.id not in failed and not finished(output / job.id)]
    if left:
      notes.append(f"not run yet: {title(cell)}, seed {', '.join(map(str, left))}")
  return notes


def _csv(table: Table, figures: Mapping[tuple[str, str], Figure]) -> str:
  """Every figure: ours in the paper's units, and the published one with its source."""
  text = io.StringIO()
  writer = csv.writer(text, lineterminator="\n")
  writer.writerow(("row", "column", "ours", "sd", "half_width", "seeds", "published", "source"))
  for row in table.rows:
    scale = 1 if row.gain_over else table.scale
    scaled = lambda value: None if value is None else scale * value
    for column, published in zip(table.columns, row.published, strict=True):
      figure = figures.get((row.name, column.heading))
      ours: Sequence = (None,) * 4
      if figure:
        ours = (scaled(figure.mean), scaled(figure.sd), scaled(figure.half_width), figure.seeds)
      writer.writerow((row.name, column.heading, *ours, published, table.title))
  return text.getvalue()
