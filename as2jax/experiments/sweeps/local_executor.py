"""Run the jobs of a sweep on this machine, so many at a time, each a process of `as2jax.main`."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from as2jax.experiments.sweeps.points import Job
from as2jax.runtime.devices import huge_pages_environment
from as2jax.runtime.files import write_whole
from as2jax.runtime.preemption import stop_listening

POLL = 0.2  # seconds
TAIL = 4000  # bytes of a log in which its last line is looked for
PATIENCE = 60.0  # seconds in which a process may end by itself, and save before it does


class Running(NamedTuple):
  """A run under way; of those at a time each has a place, from 0, and by it its share of the cores."""

  job: Job
  process: subprocess.Popen
  started: float
  place: int


def finished(folder: pathlib.Path) -> bool:
  """Tell whether a run has its results, which are the last that it writes."""
  return (folder / "results.json").exists()


def command(folder: pathlib.Path) -> list[str]:
  """Return the command that starts or continues the run in `folder`."""
  config = f"--config=rerun:{folder / 'config.json'}"
  return [sys.executable, "-m", "as2jax.main", config, f"--workdir={folder}"]


def _say(line: str) -> None:
  print(line, flush=True)


def execute(
  jobs: Sequence[Job],
  output: pathlib.Path,
  *,
  parallel: int,
  say: Callable[[str], None] = _say,
  make_command: Callable[[pathlib.Path], list[str]] = command,
) -> dict[str, str]:
  """Run what is not finished; return {id: last line of its log} of the runs that failed.

  Where this process is interrupted (also by SIGTERM) its runs end; called again, they go on.
  """
  waiting = [job for job in jobs if not finished(output / job.id)]
  say(f"{len(jobs)} runs, {len(jobs) - len(waiting)} of them finished before")
  parallel = min(parallel, len(waiting))
  failed: dict[str, str] = {}
  running: list[Running] = []
  before = signal.signal(signal.SIGTERM, signal.default_int_handler)
  stop_listening()  # SIGINT is KeyboardInterrupt from here on
  try:
    while waiting or running:
      while waiting and len(running) < parallel:
        job = waiting.pop(0)
        place = min(set(range(parallel)) - {one.place for one in running})
        process = _start(job, output / job.id, make_command, share_of_cores(place, parallel))
        running.append(Running(job, process, time.monotonic(), place))
      for one in list(running):
        if one.process.poll() is not None:
          running.remove(one)
          done = len(jobs) - len(waiting) - len(running)
          ended = _ended(one, output / one.job.id, failed)
          say(f"[{done}/{len(jobs)}] {one.job.id} {one.job.title}: {ended}")
      time.sleep(POLL)
  finally:
    _stop([one.process for one in running])
    signal.signal(signal.SIGTERM, before)
  return failed


def share_of_cores(place: int, parallel: int) -> set[int]:
  """Return the cores of the run at `place` of `parallel` ones; none where nothing is shared out.

  Two trainings on one core each take 13 % less time than two on both (accurate, MiniLM, two cores).
  """
  if parallel == 1 or not hasattr(os, "sched_getaffinity"):  # the latter is Linux' own
    return set()
  cores = sorted(os.sched_getaffinity(0))
  return set(cores[place % len(cores) :: parallel])


def write_config(folder: pathlib.Path, job: Job) -> None:
  """Write a run's config, unless it is there."""
  if not (folder / "config.json").exists():
    write_whole(folder / "config.json", job.text + "\n")


def _start(job: Job, folder: pathlib.Path, make_command, cores: set[int]) -> subprocess.Popen:
  write_config(folder, job)
  with open(folder / "log.txt", "ab") as log:
    process = subprocess.Popen(
      make_command(folder),
      stdout=log,
      stderr=subprocess.STDOUT,
      stdin=subprocess.DEVNULL,
      env=huge_pages_environment(os.environ),
    )
  if cores:
    with contextlib.suppress(ProcessLookupError):  # it has ended already
      os.sched_setaffinity(process.pid, cores)  # before it starts threads, which inherit it
  return process


def _ended(one: Running, folder: pathlib.Path, failed: dict[str, str]) -> str:
  """Return what to say of a run that ended; note a failure."""
  if one.process.returncode == 0 and finished(folder):
    return f"finished in {time.monotonic() - one.started:.0f} s"
  log = folder / "log.txt"
  last = failed[one.job.id] = last_line(log) or "it wrote nothing"
  return f"FAILED with status {one.process.returncode}: {last} ({log})"


def last_line(log: pathlib.Path) -> str:
  """Return the last line of a log, which may be under way; "" where there is none yet."""
  if not log.exists():
    return ""
  with log.open("rb") as file:
    file.seek(max(log.stat().st_size - TAIL, 0))
    lines = file.read().decode(errors="replace").strip().splitlines()
  return lines[-1].strip() if lines else ""


def _stop(processes: Sequence[subprocess.Popen]) -> None:
  """End what still runs: told to, it saves itself; interrupted again, or too late, it is killed."""
  try:
    for process in processes:
      process.terminate()
    end = time.monotonic() + PATIENCE
    while any(process.poll() is None for process in processes) and time.monotonic() < end:
      time.sleep(POLL)
  finally:
    for process in processes:
      process.kill()
      process.wait()
