"""Run the jobs of a sweep on this machine, so many at a time, each a process of `as2jax.main`."""

import functools
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from as2jax.experiments.sweeps.points import Job
from as2jax.runtime.devices import huge_pages_environment
from as2jax.runtime.files import write_whole
from as2jax.runtime.preemption import stop_listening

POLL = 0.2  # seconds
TAIL = 4000  # bytes of a log in which its last line is looked for
PATIENCE = 60.0  # seconds in which a process may end by itself, and save before it does


def finished(folder: pathlib.Path) -> bool:
  """Tell whether a run has its results, which are the last that it writes."""
  return (folder / "results.json").exists()


def command(folder: pathlib.Path) -> list[str]:
  """Return the command that starts or continues the run in `folder`."""
  config = f"--config=rerun:{folder / 'config.json'}"
  return [sys.executable, "-m", "as2jax.main", config, f"--workdir={folder}"]


def execute(
  jobs: Sequence[Job],
  output: pathlib.Path,
  *,
  parallel: int,
  say: Callable[[str], None] = functools.partial(print, flush=True),
  make_command: Callable[[pathlib.Path], list[str]] = command,
) -> dict[str, str]:
  """Run what is not finished; return {id: last line of its log} of the runs that failed.

  Where this process is interrupted (also by SIGTERM) its runs end; called again, they go on.
  """
  waiting = [job for job in jobs if not finished(output / job.id)]
  say(f"{len(jobs)} runs, {len(jobs) - len(waiting)} of them finished before")
  failed: dict[str, str] = {}
  running: list[tuple[Job, subprocess.Popen, float]] = []  # with when it started
  before = signal.signal(signal.SIGTERM, signal.default_int_handler)
  stop_listening()  # SIGINT is KeyboardInterrupt from here on
  try:
    while waiting or running:
      while waiting and len(running) < parallel:
        job = waiting.pop(0)
        running.append((job, _start(job, output / job.id, make_command), time.monotonic()))
      for one in list(running):
        job, process, started = one
        if process.poll() is None:
          continue
        running.remove(one)
        said = f"finished in {time.monotonic() - started:.0f} s"
        if process.returncode or not finished(output / job.id):
          log = output / job.id / "log.txt"
          failed[job.id] = last_line(log) or "it wrote nothing"
          said = f"FAILED with status {process.returncode}: {failed[job.id]} ({log})"
        done = len(jobs) - len(waiting) - len(running)
        say(f"[{done}/{len(jobs)}] {job.id} {job.title}: {said}")
      time.sleep(POLL)
  finally:
    _stop([process for _, process, _ in running])
    signal.signal(signal.SIGTERM, before)
  return failed


def write_config(folder: pathlib.Path, job: Job) -> None:
  """Write a run's config, unless it is there."""
  if not (folder / "config.json").exists():
    write_whole(folder / "config.json", job.text + "\n")


def _start(job: Job, folder: pathlib.Path, make_command) -> subprocess.Popen:
  write_config(folder, job)
  with open(folder / "log.txt", "ab") as log:
    return subprocess.Popen(
      make_command(folder),
      stdout=log,
      stderr=subprocess.STDOUT,
      stdin=subprocess.DEVNULL,
      env=huge_pages_environment(os.environ),
    )


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
