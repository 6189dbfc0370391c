"""Run the jobs of a sweep on this machine, so many at a time, each a process."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from as2jax.config import base
from as2jax.config.overrides import flatten
from as2jax.experiments.sweeps.points import Job
from as2jax.runtime.devices import huge_pages_environment
from as2jax.runtime.files import write_whole
from as2jax.runtime.preemption import stop_listening

POLL = 0.2  # seconds
# Let Linux kill a run with its killed sweep: going on, it would hold the lock of its folder. (By a program of
# its own: a function in the child would make `subprocess` fork, which jax's threads do not bear.)
ENDS_WITH_SWEEP = (
  "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
)
PATIENCE = 60.0  # seconds in which a process may end by itself, and save before it does


def finished(folder: pathlib.Path) -> bool:
  """Tell whether a run has its results, which are the last that it writes."""
  return (folder / "results.json").exists()


def command(folder: pathlib.Path) -> list[str]:
  """Return the command that starts or continues the run in `folder`."""
  config = f"--config=rerun:{folder / 'config.json'}"
  return [sys.executable, "-m", "as2jax.main", config, f"--workdir={folder}"]


def options(job: Job) -> list[str]:
  """Return what a run's folder does not tell its process: this machine's folders, leave to run code."""
  config = {**flatten(json.loads(base.get_config().to_json())), **flatten(json.loads(job.text))}
  defaults = flatten(base.get_config())
  given = [f"--config.{key}={config[key]}" for key in base.FOLDERS if config[key] != defaults[key]]
  names = [str(config[f"{section}.name"]) for section in ("model", "loss", "encoder")]
  return [*given, *["--allow-code"] * any(":" in name for name in names)]


def execute(
  jobs: Sequence[Job],
  output: pathlib.Path,
  *,
  parallel: int,
  make_command: Callable[[pathlib.Path], list[str]] = command,
) -> dict[str, str]:
  """Run what is not finished; return {id: last line of its log} of the runs that failed.

  A job starts when those that it begins with are finished. Where this process is interrupted (also by
  SIGTERM) its runs end; called again, they go on.
  """
  every: dict[str, Job] = {}
  for job in jobs:
    for one in _with_first(job):
      every.setdefault(one.id, one)
  waiting = [job for job in every.values() if not finished(output / job.id)]
  print(f"{len(every)} runs, {len(every) - len(waiting)} of them finished before", flush=True)
  failed: dict[str, str] = {}
  running: dict[str, tuple[Job, subprocess.Popen, float]] = {}  # with when it started
  before = signal.signal(signal.SIGTERM, signal.default_int_handler)
  stop_listening()  # SIGINT is KeyboardInterrupt from here on
  try:
    while waiting or running:
      for job in list(waiting):
        if any(first.id in failed for first in job.after):
          failed[job.id] = "what it begins with has failed"
          waiting.remove(job)
        elif len(running) < parallel and all(finished(output / first.id) for first in job.after):
          waiting.remove(job)
          process = _start(job, output / job.id, make_command)
          running[job.id] = job, process, time.monotonic()
      for job, process, started in list(running.values()):
        if process.poll() is None:
          continue
        del running[job.id]
        said = f"finished in {time.monotonic() - started:.0f} s"
        if process.returncode or not finished(output / job.id):
          log = output / job.id / "log.txt"
          failed[job.id] = last_line(log) or "it wrote nothing"
          said = f"FAILED with status {process.returncode}: {failed[job.id]} ({log})"
        done = len(every) - len(waiting) - len(running)
        print(f"[{done}/{len(every)}] {job.id} {job.name}: {said}", flush=True)
      time.sleep(POLL)
  finally:
    _stop([process for _, process, _ in running.values()])
    signal.signal(signal.SIGTERM, before)
  return failed


def _with_first(job: Job) -> Iterator[Job]:
  """Yield a job after all that it begins with."""
  for first in job.after:
    yield from _with_first(first)
  yield job


def write_config(folder: pathlib.Path, job: Job) -> None:
  """Write a run's config, unless it is there."""
  if not (folder / "config.json").exists():
    write_whole(folder / "config.json", job.text + "\n")


def _start(job: Job, folder: pathlib.Path, make_command) -> subprocess.Popen:
  write_config(folder, job)
  words = [*make_command(folder), *options(job)]
  if sys.platform == "linux":
    words = [sys.executable, "-ISc", ENDS_WITH_SWEEP, *words]
  with open(folder / "log.txt", "ab") as log:
    return subprocess.Popen(
      words,
      stdout=log,
      stderr=subprocess.STDOUT,
      stdin=subprocess.DEVNULL,
      env=huge_pages_environment(os.environ),
    )


def last_line(log: pathlib.Path) -> str:
  """Return the last line of a log, which may be under way; "" where there is none yet."""
  lines = log.read_text(errors="replace").splitlines() if log.exists() else []
  return next((line.strip() for line in reversed(lines) if line.strip()), "")


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
