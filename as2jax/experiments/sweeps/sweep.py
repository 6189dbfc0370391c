"""python -m as2jax.experiments.sweeps.sweep configs/ablations/x.py --output=runs/x: every point and seed of a sweep.

A sweep file has `BASE`, a config file with its argument, and `points()`, which yields flat
overrides of it ({"optimizer.rate": 1e-5}). Each point and seed is a run of its own in a folder of
--output whose name is the hash of its resolved config, so that what is finished is never run again.
Points are compared, and the best is chosen, by MAP on dev (with data.holdout, on the questions
held out); only the test figures of that one are a result of the sweep.
"""

import argparse
import functools
import pathlib
import sys
from collections.abc import Callable, Sequence

from as2jax.experiments.sweeps import local_executor
from as2jax.experiments.sweeps.points import Job, load, plan, seeds_of, settings_of, write_manifest
from as2jax.runtime.errors import InputError


def sweep(
  path: str,
  output: str,
  *,
  base: str = "",
  seeds: Sequence[int] = (),
  settings: Sequence[str] = (),
  parallel: int = 1,
  split: str = "",
  elsewhere: Callable[[Sequence[Job], pathlib.Path], str] | None = None,
) -> int:
  """Plans, runs and collects; prints the table. Returns 0, or 1 where a run failed.

  Args:
    split: of the table; "" for that by which the best is chosen.
    elsewhere: writes what runs the jobs on other machines and says what to do with it; None to run
      them here.

  """
  if "://" in output:
    raise InputError(f"--output={output}: runs on this machine want a local folder")
  if parallel < 0:
    raise InputError(f"--parallel={parallel}: give 1 or more, or 0 to collect alone")
  named, points = load(path)
  jobs = plan(base or named, points, seeds=seeds, settings=settings_of(settings))
  folder = pathlib.Path(output).absolute()
  write_manifest(folder, jobs)
  if elsewhere:
    print(elsewhere(jobs, folder))
    return 0
  failed = run_here(jobs, folder, parallel) if parallel else {}
  from as2jax.experiments.sweeps import table  # with numpy and all that reads results

  print(table.collect(folder, jobs, split))
  return 1 if failed else 0


def run_here(jobs: Sequence[Job], folder: pathlib.Path, parallel: int) -> dict[str, str]:
  """Runs jobs on this machine, with a live table on a terminal; returns what failed, as `execute`."""
  if not sys.stdout.isatty():
    return local_executor.execute(
      jobs, folder, parallel=parallel, say=lambda line: print(line, flush=True)
    )
  from rich.live import Live
  from rich.text import Text

  from as2jax.experiments.sweeps import live_table

  with Live(transient=True) as live:
    return local_executor.execute(
      jobs,
      folder,
      parallel=parallel,
      say=lambda line: live.console.print(Text(line)),
      watch=lambda statuses: live.update(live_table.table(statuses, folder)),
    )


def _elsewhere(given: argparse.Namespace) -> Callable[[Sequence[Job], pathlib.Path], str] | None:
  if not given.emit:
    return None
  from as2jax.experiments.sweeps import cloud

  where = cloud.machine(given.tpu, zone=given.zone, spot=given.spot, queued=given.queued)
  return functools.partial(
    cloud.emit,
    given.emit,
    where=where,
    store=given.store.rstrip("/"),
    data=given.data.rstrip("/"),
    nodes=given.nodes,
  )


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs a sweep; returns the exit status: 1 where a run failed, 2 for bad input."""
  parser = argparse.ArgumentParser(
    prog="python -m as2jax.experiments.sweeps.sweep",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("sweep", help="a file such as configs/ablations/cete_grid.py")
  parser.add_argument("--output", required=True, help="folder of the runs and the tables")
  parser.add_argument("--base", default="", help="another config file than the sweep's BASE")
  parser.add_argument("--seeds", default="", help="such as 0,1,2; the base's where not given")
  parser.add_argument(
    "--set",
    action="append",
    default=[],
    metavar="KEY=VALUE",
    help="an override of the base, for every point",
  )
  parser.add_argument(
    "--parallel", type=int, default=1, help="runs at a time; 0 only collects what is finished"
  )
  parser.add_argument(
    "--table",
    choices=("dev", "test", "heldout"),
    default="",
    help="the split of the table of all points (default: that which chooses)",
  )
  clouds = parser.add_argument_group(
    "on Cloud TPUs (launch/tpu_vm.md): files are written, nothing is started"
  )
  clouds.add_argument("--emit", choices=("skypilot", "gcloud"), default="")
  clouds.add_argument("--tpu", default="v5e-1", help="generation and size, such as v5e-8, v6e-4")
  clouds.add_argument("--zone", default="us-west4-a")
  clouds.add_argument("--store", default="", help="gs:// folder of the runs")
  clouds.add_argument("--data", default="", help="gs:// folder that becomes AS2JAX_DATA")
  clouds.add_argument("--spot", action=argparse.BooleanOptionalAction, default=True)
  clouds.add_argument(
    "--queued", action=argparse.BooleanOptionalAction, default=True, help="as queued resources"
  )
  clouds.add_argument("--nodes", type=int, default=1, help="machines at a time, of gcloud")
  given = parser.parse_args(arguments)
  try:
    return sweep(
      given.sweep,
      given.output,
      base=given.base,
      seeds=seeds_of(given.seeds),
      settings=given.set,
      parallel=given.parallel,
      split=given.table,
      elsewhere=_elsewhere(given),
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
