"""Run a paper's table (`as2jax lab paper`), and set our figures beside the published ones.

Every row whose data and weights are here is run in a folder named by the hash of its config: the same
command goes on after a kill, and tables share runs. What cannot be run is named with the reason.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from as2jax.data import load
from as2jax.evaluation import compare, results, run_scores
from as2jax.evaluation.run_scores import RunScores
from as2jax.evaluation.significance import ONE_SEED
from as2jax.experiments.papers import collected, measured, rows
from as2jax.experiments.papers import plan as paper_plan
from as2jax.experiments.papers.plan import Cell, Choice, Plan
from as2jax.experiments.papers.rows import Column, Row, Table
from as2jax.experiments.sweeps import local_executor
from as2jax.experiments.sweeps import table as sweep_table
from as2jax.experiments.sweeps.local_executor import finished
from as2jax.inference.run import Run
from as2jax.runtime.files import write_whole

SEARCHED = 3  # sentences a question, as in ASBERT's table 5
LEGEND = "ours: mean ± 95 % half-width over questions (s.d. over seeds); paper: as published"


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

  def cell(self, row: Row, column: Column) -> str:
    """Return what the finished runs of a row come to in a column, over its data sets; "–" for nothing."""
    found = [self.scores(row.name, key, column) for key in column.runs]
    found = list(filter(None, found))
    if not found:
      return "–"
    if len(column.runs) == 1:
      return measured.cell(found[0], column)
    mean = np.mean([scores.metric(column.metric).mean() for scores in found])
    return f"{measured.short(mean)} ({len(found)} of {len(column.runs)} data sets)"

  def cells(self) -> list[list[str]]:
    """Return a head and a row of texts a row; figures of other weights or data have a line of their own."""
    lines = [[""]]
    for column in self.table.columns:
      lines[0] += [column.heading, "paper"]
    for row in self.table.rows:
      apart = any((row.name, key) in self.plan.others for key in row.runs)
      line, own = [row.name], [f"ours: {row.name}"]
      for column, published in zip(self.table.columns, row.published, strict=True):
        ours = self.cell(row, column)
        theirs = "" if published is None else f"{published / self.table.scale:g}".removeprefix("0")
        line += ["–" if apart else ours, theirs]
        own += [ours, ""]
      lines.append(line)
      if apart and set(own[1:]) != {"–", ""}:
        lines.append(own)
    return lines

  def notes(self) -> list[str]:
    """Say of rows: other weights, one seed, nothing gained by training."""
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
          tested = compare.compare(groups[0], [column.metric], **options)
          lines += ["", compare.as_text(tested)]
        elif groups:
          tested = compare.compare_groups(groups, [column.metric], **options)
          lines += ["", compare.as_text(tested)]
    if lines:
      lines[:0] = ["", "the paper's claims, each row after the one that it is said to improve:"]
    return lines


def write(
  table: Table, plan: Plan, output: pathlib.Path, choice: Choice, failed: Mapping[str, str]
) -> str:
  """Write <table>.txt, .md, .tex, .html and .csv into `output`; return the text."""
  figures = Figures(table, plan, output)
  notes = []
  if choice.words:
    words = ",".join(choice.words)
    notes.append(f"not the paper's: every config that takes it was run with {words}")
  if choice.settings:
    settings = ", ".join(f"{key}={value}" for key, value in choice.settings.items())
    notes.append(f"not the paper's: {settings}")
  notes += [*figures.notes(), *_left_out(plan, output, failed)]
  folders = [folder for cell in plan.cells for folder in plan.folders(cell, output)]
  done = list(dict.fromkeys(filter(finished, folders)))
  notes += [*sweep_table.tests_seen(done), *sweep_table.seen_by(done), *figures.tests()]
  heading = f"{table.title}\n{LEGEND}"
  return sweep_table.write_forms(output / table.name, heading, figures.cells(), notes, left=1)


def _left_out(plan: Plan, output: pathlib.Path, failed: Mapping[str, str]) -> list[str]:
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


def listing(table: Table, plan: Plan, output: pathlib.Path) -> str:
  """Return what would be run, what is finished, and what is skipped and why."""
  lines, shown = [table.title], set()

  def add(job, text: str) -> None:
    state = "finished" if finished(output / job.id) else "would run"
    lines.append(f"  {state:9s} {text} ({job.id})")

  for row in table.rows:
    for key in row.runs or ("",):
      cell = row.name, key
      name, config = title_of(cell), plan.configs.get(cell)
      if cell in plan.skipped:
        lines.append(f"  skipped   {name}: {plan.skipped[cell]}")
      elif cell in plan.taken:
        lines.append(f"  taken     {name}: {config} ({plan.taken[cell]})")
      else:
        for job in plan.cells.get(cell, ()):
          shown.add(job.id)
          add(job, f"{name}, seed {job.seed}: {config}")
  for wave in plan.waves:
    for job in wave:
      if job.id not in shown:
        add(job, f"first: {job.title}")
  return "\n".join(lines)


def run(plan: Plan, output: pathlib.Path, parallel: int, *, train: bool = True) -> dict[str, str]:
  """Run the jobs wave by wave; return {id: why} of those that failed or could not begin.

  Without `train`, only those that take no step.
  """
  failed: dict[str, str] = {}
  for wave in plan.waves:
    ready = []
    for job in wave:
      before = [name for name in plan.after[job.id] if name in failed]
      if before:
        failed[job.id] = f"what it begins with has failed ({before[0]})"
      elif train or not json.loads(job.text)["epochs"]:
        ready.append(job)
    if ready:
      failed |= local_executor.execute(ready, output, parallel=parallel)
  return failed


def searches(table: Table, plan: Plan, output: pathlib.Path) -> str:
  """Search the test sentences with each of the table's questions, by every row whose run is finished."""
  folders = {}
  for row, key in plan.cells:
    folder = plan.folders((row, key), output)[0]
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
  only_list: bool,
  runs: Sequence[pathlib.Path] = (),
  train: bool = True,
) -> int:
  """Plan, run and print one table; return 1 where a run failed, else 0.

  Args:
    output: folder of runs and tables.
    parallel: runs at a time; 0 for none.
    only_list: says what would be run in place of running it.
    runs: folders of finished runs, or of packed rows, which stand for jobs of their config.
    train: whether jobs that take training steps are run.

  """
  table = rows.load(name)
  plan = paper_plan.plan(table, output, choice)
  with contextlib.ExitStack() as stack:
    folders = []
    for folder in runs:
      if any(folder.glob(f"*{collected.PACKED}")):
        folder = stack.enter_context(collected.unpacked(folder))
      folders.append(folder)
    if folders:
      paper_plan.take(plan, folders)
    if only_list:
      print(listing(table, plan, output))
      return 0
    failed = run(plan, output, parallel, train=train) if parallel else {}
    print(write(table, plan, output, choice, failed))
    if text := searches(table, plan, output):
      write_whole(output / f"{table.name}-searches.txt", text + "\n")
      print(f"\n{text}")
  return 1 if failed else 0
