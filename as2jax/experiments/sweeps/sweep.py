"""Every point and seed of a sweep, each a run of its own (`as2jax lab sweep`).

A sweep file has `BASE`, a config file with its argument, and `points()`, which yields flat
overrides of it ({"optimizer.rate": 1e-5}). Each point and seed is a run in a folder of
the output whose name is the hash of its resolved config, so that what is finished is never run again.
Points are compared, and the best is chosen, by MAP (over a pool by MRR) on dev, with
data.holdout on the questions held out; only the test figures of that one are a result of the sweep.
"""

import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.experiments.sweeps import local_executor
from as2jax.experiments.sweeps.points import Job, plan, write_manifest
from as2jax.runtime.errors import InputError

DRAW = 2.0  # seconds between two looks at all runs


def sweep(
  base: str,
  points: Sequence[Mapping[str, Any]],
  output: str,
  *,
  seeds: Sequence[int] = (),
  settings: Mapping[str, Any] | None = None,
  parallel: int = 1,
  split: str = "",
) -> int:
  """Plans, runs and collects; prints the table. Returns 0, or 1 where a run failed.

  Args:
    base, points, output, seeds, settings: see `planned`.
    parallel: runs at a time; 0 to collect alone.
    split: of the table; "" for that by which the best is chosen.

  """
  if parallel < 0:
    raise InputError(f"--parallel={parallel}: give 1 or more, or 0 to collect alone")
  jobs, folder = planned(base, points, output, seeds=seeds, settings=settings)
  write_manifest(folder, jobs)
  failed = run_here(jobs, folder, parallel) if parallel else {}
  from as2jax.experiments.sweeps import table  # with numpy and all that reads results

  print(table.collect(folder, jobs, split))
  return 1 if failed else 0


def planned(
  base: str,
  points: Sequence[Mapping[str, Any]],
  output: str,
  *,
  seeds: Sequence[int] = (),
  settings: Mapping[str, Any] | None = None,
) -> tuple[list[Job], pathlib.Path]:
  """The runs of a sweep and its folder, into which nothing is written yet.

  Args:
    base: the config that the points override; see `points.load`.
    points: flat overrides.
    output: a local folder.
    seeds, settings: of every point; see `points.plan`.

  """
  if "://" in output:
    raise InputError(f"--output={output}: runs on this machine want a local folder")
  jobs = plan(base, points, seeds=seeds, settings=settings)
  return jobs, pathlib.Path(output).absolute()


def run_here(jobs: Sequence[Job], folder: pathlib.Path, parallel: int) -> dict[str, str]:
  """Runs jobs on this machine, with a live table on a terminal; returns what failed, as `execute`."""
  if not sys.stdout.isatty():
    return local_executor.execute(
      jobs, folder, parallel=parallel, say=lambda line: print(line, flush=True)
    )
  from rich.live import Live
  from rich.text import Text

  from as2jax.experiments.sweeps import watch

  drawn = [0.0]

  def draw() -> None:
    if time.monotonic() - drawn[0] > DRAW:
      states = [watch.state_of(epath.Path(folder / job.id), job) for job in jobs]
      live.update(watch.table(states))
      drawn[0] = time.monotonic()

  with Live(transient=True) as live:
    return local_executor.execute(
      jobs, folder, parallel=parallel, say=lambda line: live.console.print(Text(line)), watch=draw
    )
