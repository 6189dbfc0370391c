"""Run a paper's table (`as2jax lab paper`), and set our figures beside the published ones.

Every row whose data and weights are here is run in a folder named by the hash of its config: the same
command goes on after a kill, and tables share runs. What cannot be run is named with the reason.
"""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from as2jax.data import load
from as2jax.evaluation import compare, metrics, results, run_scores
from as2jax.evaluation import tables as forms
from as2jax.evaluation.run_scores import RunScores
from as2jax.evaluation.significance import ONE_SEED
from as2jax.experiments import figures, sweep
from as2jax.experiments.papers import collected, rows
from as2jax.experiments.papers import plan as paper_plan
from as2jax.experiments.papers.plan import Cells, Choice
from as2jax.experiments.papers.rows import Column, Row, Table
from as2jax.experiments.sweep import finished
from as2jax.inference.run import Run
from as2jax.runtime.files import write_whole

SEARCHED = 3  # sentences a question, as in ASBERT's table 5
LEGEND = "ours: mean ± 95 % half-width over questions (s.d. over seeds); paper: as published"


class Figures:
  """Compute what the finished runs of a table come to."""

  def __init__(self, table: Table, cells: Cells, output: pathlib.Path, seeds: Sequence[int] = ()):
    self.table, self.cells, self.output, self.seeds = table, cells, output, seeds
    self.scores = functools.cache(self.scores)

  def scores(self, row: str, key: str, column: Column) -> RunScores | None:
    """Return the values of every question of one run of a row, once all its seeds are finished."""
    cell = self.cells.get((row, key))
    folders = cell.folders(self.output) if cell else []
    if not folders or not all(map(finished, folders)):
      return None
    content = results.read(folders[0])
    metric = metrics.KEYS[content["task"]][0]
    where = f"{content['data']['name']}-{column.question_filter}/{column.split}"
    if f"{metric}[{where}]" not in content["metrics"]:
      return None
    asked = {"split": column.split, "question_filter": column.question_filter}
    seeds = [job.seed for job in cell.jobs]
    if cell.taken:  # which may have more seeds than were asked for
      asked["seeds"] = seeds if self.seeds else ()
    runs = run_scores.load(list(map(str, folders)), **asked)
    loaded = dataclasses.replace(runs[0], name=row)
    if not cell.taken:
      loaded = figures.one_system(row, seeds, runs)
    return loaded if column.metric in loaded.values else None

  def cell(self, row: Row, column: Column) -> str:
    """Return what the finished runs of a row come to in a column, over its data sets; "–" for nothing."""
    found = [self.scores(row.name, key, column) for key in column.runs]
    found = list(filter(None, found))
    if not found:
      return "–"
    if len(column.runs) == 1:
      return figures.cell(found[0], column.metric)
    mean = np.mean([scores.metric(column.metric).mean() for scores in found])
    return f"{figures.short(mean)} ({len(found)} of {len(column.runs)} data sets)"

  def lines(self) -> list[dict[str, str]]:
    """Return a mapping from headings to texts a row; figures of other weights or data have one of their own."""
    lines = []
    for row in self.table.rows:
      line, ours = {"": row.name}, {"": f"ours: {row.name}"}
      for column, published in zip(self.table.columns, row.published, strict=True):
        line[column.heading] = ours[column.heading] = self.cell(row, column)
        paper = "" if published is None else f"{published / self.table.scale:g}".removeprefix("0")
        line[f"paper's {column.heading}"] = paper
      lines.append(line)
      if any(self.cells[row.name, key].other for key in row.runs):
        for column in self.table.columns:
          line[column.heading] = "–"
        if set(ours.values()) != {ours[""], "–"}:
          lines.append(ours)
    return lines

  def notes(self) -> list[str]:
    """Say of rows: other weights, one seed, nothing gained by training."""
    lines = []
    first = {column.runs[0]: column for column in reversed(self.table.columns)}
    for (row, key), cell in self.cells.items():
      if cell.other:
        lines.append(f"{cell.title}: not the paper's ({cell.other})")
      scores = self.scores(row, key, first[key]) if key in first else None
      if scores is None:
        continue
      if scores.note:
        lines.append(f"{cell.title}: {scores.note}")
      if len(scores.metric(first[key].metric)) == 1 and not scores.deterministic:
        lines.append(f"{cell.title}: one seed: whether the method differs from another {ONE_SEED}")
      if cell.taken:
        lines.append(f"{cell.title}: the finished run {cell.taken.name}")
    return lines

  def tests(self) -> list[str]:
    """Test the paper's claims with our runs: of these models and of the methods."""
    lines = []
    for pair in self.table.claims:
      for column in self.table.columns:
        groups = []
        for key in column.runs:
          sides = [self.scores(name, key, column) for name in pair]
          if all(sides):
            groups.append(sides)
        if groups and len(column.runs) == 1:
          tested = compare.compare(groups[0], [column.metric])
          lines += ["", compare.as_text(tested)]
        elif groups:
          tested = compare.compare_groups(groups, [column.metric])
          lines += ["", compare.as_text(tested)]
    if lines:
      lines[:0] = ["", "the paper's claims, each row after the one that it is said to improve:"]
    return lines


def write(
  table: Table, cells: Cells, output: pathlib.Path, choice: Choice, failed: Mapping[str, str]
) -> str:
  """Write <table>.txt, .md, .tex and .csv into `output`; return the text."""
  filled = Figures(table, cells, output, choice.seeds)
  notes = []
  if choice.words:
    words = ",".join(choice.words)
    notes.append(f"not the paper's: every config that takes it was run with {words}")
  if choice.settings:
    settings = ", ".join(f"{key}={value}" for key, value in choice.settings.items())
    notes.append(f"not the paper's: {settings}")
  notes += [*filled.notes(), *_left_out(cells, output, failed)]
  folders = [folder for cell in cells.values() for folder in cell.folders(output)]
  notes += figures.seen(list(dict.fromkeys(filter(finished, folders)))) + filled.tests()
  heading, lines = f"{table.title}\n{LEGEND}", filled.lines()
  made = {form: forms.render(lines, form, caption=heading) for form in ("latex", "csv")}
  made["markdown"] = f"{heading}\n\n{forms.render(lines, 'markdown')}"
  made["text"] = f"{heading}\n{forms.render(lines)}"
  return figures.write(output / table.name, made, notes)


def _left_out(cells: Cells, output: pathlib.Path, failed: Mapping[str, str]) -> list[str]:
  """Say what was not run, and why."""
  notes = []
  for cell in cells.values():
    if cell.lacks:
      notes.append(f"skipped: {cell.title}: {cell.lacks}")
    for job in cell.jobs if not cell.taken else ():
      if job.id in failed:
        notes.append(f"failed: {job.name} ({job.id}): {failed[job.id]}")
      elif not finished(output / job.id):
        notes.append(f"not run yet: {job.name}: {cell.config} ({job.id})")
  return notes


def searches(table: Table, cells: Cells, output: pathlib.Path) -> str:
  """Search the test sentences with each of the table's questions, by every row whose run is finished."""
  folders = {}
  for (row, _), cell in cells.items():
    for folder in cell.folders(output)[:1]:
      if finished(folder):
        folders.setdefault(row, folder)
  if not table.searches or not folders:
    return ""
  config = Run(next(iter(folders.values()))).config
  pool = load.load(config.data, "retrieve").pools["test"]
  texts = [passage.text for passage in pool.passages]
  indexes = {row: Run(folder).ranker().index(texts) for row, folder in folders.items()}
  lines = []
  for question in table.searches:
    lines += ["", f"question: {question}"]
    for row, index in indexes.items():
      lines.append(f"  {row}")
      for rank, hit in enumerate(index.search(question, SEARCHED), 1):
        lines.append(f"    {rank}. {hit.score:.3f} {hit.text}")
  return "\n".join(lines[1:])


def make(
  name: str,
  output: pathlib.Path,
  choice: Choice,
  *,
  parallel: int,
  runs: Sequence[pathlib.Path] = (),
) -> int:
  """Plan, run and print one table; return 1 where a run failed, else 0.

  Args:
    output: folder of runs and tables.
    parallel: runs at a time; 0 for none.
    runs: folders of finished runs, or of packed rows, which stand for jobs of their config.

  """
  table = rows.load(name)
  cells = paper_plan.plan(table, output, choice)
  with contextlib.ExitStack() as stack:
    folders = []
    for folder in runs:
      if any(folder.glob(f"*{collected.PACKED}")):
        folder = stack.enter_context(collected.unpacked(folder))
      folders.append(folder)
    if folders:
      paper_plan.take(cells, folders)
    failed: dict[str, str] = {}
    if parallel:
      jobs = [job for cell in cells.values() for job in cell.jobs if not cell.taken]
      failed = sweep.execute(jobs, output, parallel=parallel)
    print(write(table, cells, output, choice, failed))
    if text := searches(table, cells, output):
      write_whole(output / f"{table.name}-searches.txt", text + "\n")
      print(f"\n{text}")
  return 1 if failed else 0
