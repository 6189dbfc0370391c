"""Runs that are stopped at any moment, by SIGKILL, SIGTERM and ^C, and end the same to the bit.

A run is `as2jax.main` in a process that is forked from this one, which has imported everything and
touched no device: it starts in a second. What is left of a stopped run is continued by the next.
The runs are compared when the last process has ended: to read a checkpoint starts threads, and a
process that is forked from one with threads may wait for ever for a lock of theirs.
"""

import dataclasses
import faulthandler
import os
import pathlib
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import tiny

from tests.faults.fuzz import Totals

PAUSE = 0.05  # seconds added to each step, so that signals come between steps, too
LONGEST = 200.0  # seconds for one process
HUNG = "hung"
RIGHT = {  # signal -> the statuses that it may leave, where it does not come after the end
  signal.SIGKILL: (-signal.SIGKILL,),
  signal.SIGTERM: (75, -signal.SIGTERM),  # the second before the handler is there
  signal.SIGINT: (130,),
}


@dataclasses.dataclass(frozen=True)
class Runs:
  """Runs of one config in folders below `base`."""

  base: pathlib.Path

  def __post_init__(self):
    from as2jax.inference import modes  # noqa: F401  imported before the forks
    from as2jax.main import entry  # noqa: F401
    from as2jax.training import loop  # noqa: F401

    self.base.mkdir(parents=True, exist_ok=True)
    encoder = self.base / "encoder"
    if not encoder.exists():  # made in a process of its own: a fork of one that used jax may hang
      child = os.fork()
      if child == 0:
        try:
          shutil.copytree(tiny.encoder_folder(), encoder)
        finally:
          os._exit(not encoder.exists())
      wait(child)
    os.environ["AS2JAX_TINY_ENCODER"] = str(encoder)
    config = tiny.config(
      "crossencoder",
      epochs=2,
      checkpoint__steps=2,
      log__steps=2,
      data__train_fraction=0.15,
      optimizer__rate=1e-3,
    )
    (self.base / "config.json").write_text(config.to_json())

  def start(self, name: str) -> int:
    """Forks the process that trains in the folder `name`."""
    return fork(lambda: self._train(name), self.base / f"{name}.log")

  def _train(self, name: str) -> None:
    import logging

    from as2jax import main
    from as2jax.training import loop

    logging.disable(logging.NOTSET)
    add = loop.StepLog.add
    loop.StepLog.add = lambda *args: (time.sleep(PAUSE), add(*args))
    config = f"--config=rerun:{self.base / 'config.json'}"
    sys.argv = ["as2jax.main", config, f"--workdir={self.base / name}"]
    main.entry()

  def finish(self, name: str) -> None:
    """Runs to the end."""
    status = wait(self.start(name))
    if status:
      raise AssertionError(f"{name} ended with {status}: {self.said(name)[-3000:]}")

  def said(self, name: str) -> str:
    """What the processes of a run printed."""
    path = self.base / f"{name}.log"
    return path.read_text() if path.exists() else ""

  def rows(self, name: str) -> int:
    """Number of rows in the run's log."""
    path = self.base / name / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def fork(work: Callable[[], Any], log: pathlib.Path) -> int:
  """Forks a process that does some work, as a command does, and prints to the end of a file."""
  assert threading.active_count() == 1, "a fork of a process with threads may hang"
  child = os.fork()
  if child:
    return child
  status = 1
  try:
    file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # until the command listens
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    work()
    status = 0
  except SystemExit as end:
    status = end.code or 0
  except BaseException:
    import traceback

    traceback.print_exc()
  finally:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1)


def wait(child: int, longest: float = LONGEST) -> int | str:
  """The exit status of a child, as `subprocess` has it; HUNG where it takes too many seconds.

  A child that hangs says in its log where each of its threads is, and is killed.
  """
  end = time.monotonic() + longest
  while time.monotonic() < end:
    status = ended(child)
    if status is not None:
      return status
    time.sleep(0.01)
  os.kill(child, signal.SIGUSR1)
  time.sleep(1.0)
  os.kill(child, signal.SIGKILL)
  os.waitpid(child, 0)
  return HUNG


def ended(child: int) -> int | None:
  """The exit status of a child; None while it lives."""
  done, status = os.waitpid(child, os.WNOHANG)
  return os.waitstatus_to_exitcode(status) if done else None


def stop(runs: Runs, seed: int, kills: int, others: int, a_run: int) -> list[Totals]:
  """Stops runs, `a_run` times each, until all signals are delivered; compares their ends.

  Args:
    kills: number of SIGKILLs.
    others: number of SIGTERM and SIGINT, in turn.

  """
  rng = random.Random(seed)
  signals = [signal.SIGKILL] * kills + [signal.SIGTERM, signal.SIGINT] * (others // 2)
  rng.shuffle(signals)
  by_signal, ends = Totals("stopped processes"), Totals("stopped runs")
  start = time.monotonic()
  runs.finish("plain")
  took, rows = time.monotonic() - start, runs.rows("plain")
  names = []
  while signals:
    names.append(name := f"stopped-{len(names) + 1}")
    for target in sorted(rng.randrange(rows) for _ in range(a_run)):
      if signals and _stop_once(runs, name, signals[-1], target, rng, took, by_signal):
        signals.pop()
    runs.finish(name)
  for name in names:
    different = tiny.differences(runs.base / "plain", runs.base / name)
    ends.add("the same to the bit" if not different else "different", wrong=", ".join(different))
  return [by_signal, ends]


def _stop_once(runs, name, number, target, rng, took, totals) -> bool:
  """Sends one signal to a process of a run; false where the run had ended before."""
  before = len(runs.said(name))
  child, begin = runs.start(name), time.monotonic()
  early = rng.random() < 0.25  # at any time from the first instruction on
  pause = rng.random() * (took / 2 if early else 0.2)
  status = None
  while not early and runs.rows(name) < target and time.monotonic() - begin < LONGEST:
    if (status := ended(child)) is not None:
      break
    time.sleep(0.005)
  if status is None:
    time.sleep(pause)
    status = ended(child)
  said = lambda: f"{name}: status {status}: {runs.said(name)[before:][-4000:]}"
  if status is not None:
    if status:
      totals.add("ended by itself", wrong=said())
    return False
  os.kill(child, number)
  status = wait(child)
  right = status in (*RIGHT[number], 0)  # 0: it came after the last point of the run
  right = right and "Traceback" not in said()
  totals.add(HUNG if status == HUNG else number.name, wrong="" if right else said())
  return True
