"""Run a paper's table (`as2jax lab paper`).

Every row whose data and weights are here is run in a folder named by the hash of its config: the same
command goes on after a kill, and tables share runs. What cannot be run is named with the reason.
"""

import contextlib
import json
import pathlib
from collections.abc import Sequence

from as2jax.data import load
from as2jax.experiments.papers import collected, report, rows
from as2jax.experiments.papers import plan as paper_plan
from as2jax.experiments.papers.plan import Choice, Plan
from as2jax.experiments.papers.rows import Table
from as2jax.experiments.sweeps import local_executor
from as2jax.experiments.sweeps.local_executor import finished
from as2jax.inference.run import Run
from as2jax.runtime.files import write_whole

SEARCHED = 3  # sentences a question, as in ASBERT's table 5


def listing(table: Table, plan: Plan, output: pathlib.Path) -> str:
  """Return what would be run, what is finished, and what is skipped and why."""
  lines, shown = [table.title], set()

  def add(job, text: str) -> None:
    state = "finished" if finished(output / job.id) else "would run"
    lines.append(f"  {state:9s} {text} ({job.id})")

  for row in table.rows:
    for key in row.runs or ("",):
      cell = row.name, key
      name, config = report.title_of(cell), plan.configs.get(cell)
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
    name: of the table.
    output: folder of runs and tables.
    choice: what is changed in every row.
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
    print(report.write(table, plan, output, choice, failed))
    if text := searches(table, plan, output):
      write_whole(output / f"{table.name}-searches.txt", text + "\n")
      print(f"\n{text}")
  return 1 if failed else 0
