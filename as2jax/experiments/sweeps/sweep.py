"""Every point and seed of a sweep, each a run of its own (`as2jax lab sweep`).

A sweep file has `BASE`, a config file with its argument, and `points()`, which yields flat overrides of it
({"optimizer.rate": 1e-5}). Each point and seed is a run in a folder of the output whose name is the hash of
its resolved config, so that what is finished is never run again. Points are compared, and the best is chosen,
by MAP (over a pool by MRR) on dev, with data.holdout on the questions held out; only the test figures of that
one are a result of the sweep.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from as2jax.experiments.sweeps import local_executor
from as2jax.experiments.sweeps.points import Job, plan, write_manifest
from as2jax.runtime.errors import InputError


def planned(
  base: str,
  points: Sequence[Mapping[str, Any]],
  output: str,
  *,
  seeds: Sequence[int] = (),
  settings: Mapping[str, Any] | None = None,
) -> tuple[list[Job], pathlib.Path]:
  """Return the runs of a sweep and its folder, into which nothing is written yet.

  Args:
    base: the config that the points override; see `points.load`.
    points: flat overrides.
    output: a local folder.
    seeds, settings: of every point; see `points.plan`.

  """
  if "://" in output:
    raise InputError(f"--output={output}: runs on this machine want a local folder")
  return plan(base, points, seeds=seeds, settings=settings), pathlib.Path(output).absolute()


def sweep(jobs: Sequence[Job], folder: pathlib.Path, *, parallel: int = 1, split: str = "") -> int:
  """Run the jobs, `parallel` at a time (0: none), and print the table; return 1 where a run failed.

  `split` is that of the table; "" for that by which the best is chosen.
  """
  write_manifest(folder, jobs)
  failed = run_here(jobs, folder, parallel) if parallel else {}
  from as2jax.experiments.sweeps import table  # with numpy and all that reads results

  print(table.collect(folder, jobs, split))
  return 1 if failed else 0


def prepare(jobs: Sequence[Job], folder: pathlib.Path, number: int) -> pathlib.Path:
  """Write the config of one run, for another machine to run it; return the run's folder."""
  if number >= len(jobs):
    raise InputError(f"--prepare={number}: the sweep has {len(jobs)} runs, 0 to {len(jobs) - 1}")
  job = jobs[number]
  local_executor.write_config(folder / job.id, job)
  return folder / job.id


def run_here(jobs: Sequence[Job], folder: pathlib.Path, parallel: int) -> dict[str, str]:
  """Run jobs on this machine; return what failed, see `local_executor.execute`."""
  return local_executor.execute(
    jobs, folder, parallel=parallel, say=lambda line: print(line, flush=True)
  )
