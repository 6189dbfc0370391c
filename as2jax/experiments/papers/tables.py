"""python -m as2jax.experiments.papers.tables asbert_table3 --output=runs/papers: a paper's table, run here.

Runs every row whose data and weights are here, each in a folder of --output named by the hash of
its config (the same command goes on after a kill; tables share runs), and prints our figures beside
the published ones. What cannot be run is named with the reason. Without a name: the tables there
are; with --list: what would be run and what is skipped.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from as2jax.experiments.papers import plan as paper_plan
from as2jax.experiments.papers import report
from as2jax.experiments.papers.plan import Choice, Plan, Table
from as2jax.experiments.sweeps import points, sweep
from as2jax.experiments.sweeps.local_executor import finished
from as2jax.runtime.errors import InputError


def listing(table: Table, plan: Plan, output: pathlib.Path) -> str:
  """What would be run, what is finished, and what is skipped and why."""
  lines = [table.title]
  for row in table.rows:
    for key in row.runs or ("",):
      cell = row.name, key
      name = " · ".join(filter(None, cell))
      if cell in plan.skipped:
        lines.append(f"  skipped   {name}: {plan.skipped[cell]}")
      for job in plan.cells.get(cell, ()):
        state = "finished" if finished(output / job.id) else "would run"
        lines.append(f"  {state:9s} {name}, seed {job.seed}: {plan.configs[cell]} ({job.id})")
  mine = {job.id for jobs in plan.cells.values() for job in jobs}
  for job in (job for wave in plan.waves for job in wave if job.id not in mine):
    state = "finished" if finished(output / job.id) else "would run"
    lines.append(f"  {state:9s} first: {job.title} ({job.id})")
  return "\n".join(lines)


def run(plan: Plan, output: pathlib.Path, parallel: int) -> dict[str, str]:
  """Runs the jobs wave by wave; returns {id: why} of those that failed or could not begin."""
  failed: dict[str, str] = {}
  for wave in plan.waves:
    stopped = {job.id: before for job in wave for before in plan.after[job.id] if before in failed}
    failed |= {job: f"what it begins with has failed ({before})" for job, before in stopped.items()}
    ready = [job for job in wave if job.id not in stopped]
    if ready:
      failed |= sweep.run_here(ready, output, parallel)
  return failed


def make(name: str, output: pathlib.Path, choice: Choice, *, parallel: int, only_list: bool) -> int:
  """Plans, runs and prints one table; returns 1 where a run failed, else 0."""
  table = paper_plan.load(name)
  plan = paper_plan.plan(table, output, choice)
  if only_list:
    print(listing(table, plan, output))
    return 0
  failed = run(plan, output, parallel) if parallel else {}
  print(report.write(table, plan, output, choice, failed))
  return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs tables; returns the exit status: 1 where a run failed, 2 for bad input."""
  parser = argparse.ArgumentParser(
    prog="python -m as2jax.experiments.papers.tables",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(paper_plan.names()))
  parser.add_argument("--output", default="runs/papers", help="folder of the runs and tables")
  parser.add_argument("--list", "--dry-run", dest="only_list", action="store_true")
  parser.add_argument(
    "--parallel", type=int, default=1, help="runs at a time; 0 only prints what is finished"
  )
  parser.add_argument("--seeds", default="", help="such as 0,1,2; the configs' own where not given")
  parser.add_argument(
    "--words",
    default="",
    help="further arguments of the config files, such as "
    "minilm: other weights than the paper's, which the table then says",
  )
  parser.add_argument(
    "--set",
    action="append",
    default=[],
    metavar="KEY=VALUE",
    help="an override in every row, which the table then says",
  )
  given = parser.parse_args(arguments)
  try:
    if not given.tables:
      for name in paper_plan.names():
        print(f"{name:20s} {paper_plan.load(name).title}")
      return 0
    if "://" in given.output or given.parallel < 0:
      raise InputError("--output is a local folder, --parallel 0 or more")
    choice = Choice(
      tuple(filter(None, given.words.split(","))),
      points.settings_of(given.set),
      points.seeds_of(given.seeds),
    )
    output = pathlib.Path(given.output).absolute()
    return max(
      make(name, output, choice, parallel=given.parallel, only_list=given.only_list)
      for name in given.tables
    )
  except InputError as error:
    print(f"as2jax: {error}", file=sys.stderr)
    return 2
  except KeyboardInterrupt as interrupt:
    where = f" ({interrupt})" if str(interrupt) else ""
    print(f"as2jax: interrupted{where}; the same command goes on where it stopped", file=sys.stderr)
    return 130


if __name__ == "__main__":
  sys.exit(main())
