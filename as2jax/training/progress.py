"""The progress of a run: a bar on a terminal, plain lines elsewhere, and `status.json` for a sweep."""

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from etils import epath

from as2jax.runtime import preemption, processes
from as2jax.runtime.files import seal, unseal, write_whole
from as2jax.training.metrics_log import step_seconds

NAME = "status.json"
TRAINING, STOPPED, FAILED, FINISHED = "training", "stopped", "failed", "finished"


class Progress:
  """Shows the phase of a run and how far it is; only the first process does.

  `status.json` holds `state`, `phase`, `step` of `steps`, `epoch`, `metric` with its `value` and `best`,
  `seconds_left`, `error`, `time` of writing, `began` (the first start) and `goodput`.
  """

  def __init__(self, config: Any, workdir: epath.PathLike):
    from rich import progress
    from rich.console import Console

    self.seconds, self.workdir = config.seconds, epath.Path(workdir)
    self.status: dict[str, Any] = {"state": TRAINING, "began": time.time()}
    if processes.first():
      self.status["began"] = read_status(workdir).get("began", time.time())
    self.in_steps = 0.0  # seconds, of steps that count: none that a restart has made again
    self.groups = self.finished_groups = self.epochs = self.steps = self.epoch = self.done = 0
    self.written = self.printed = -float("inf")
    self.compiled = False
    text = lambda field: progress.TextColumn(field, markup=False)
    self.bar = progress.Progress(
      text("{task.description}"),
      progress.BarColumn(),
      text("{task.percentage:.0f} %"),
      text("{task.fields[state]}"),
      console=Console(stderr=True, markup=False, emoji=False, highlight=False),
      speed_estimate_period=600.0,
      disable=not (processes.first() and sys.stderr.isatty()),
      get_time=lambda: time.monotonic(),
    )
    self.task = self.bar.add_task("", total=None, state="")

  def __enter__(self) -> "Progress":
    self.bar.start()
    return self

  def __exit__(self, kind, error, trace) -> None:
    if not self.bar.disable:
      self.bar.stop()
    if error is None:
      self._write(now=True, state=FINISHED, phase=None, seconds_left=None)
      return
    with contextlib.suppress(OSError):  # of a full disk: it would hide what ended the run
      if isinstance(error, (preemption.Preempted, KeyboardInterrupt)):
        self._write(now=True, state=STOPPED)
      else:
        text = " ".join(str(error).split()) or type(error).__name__
        self._write(now=True, state=FAILED, error=text[:1000])

  def say(self, text: str) -> None:
    """Prints a line, above the bar where there is one."""
    if not self.bar.disable:
      self.bar.console.print(text)
    elif processes.first():
      print(text, file=sys.stderr, flush=True)

  def phase(self, name: str) -> None:
    """Shows what begins: reading, tokenising, compiling, training or evaluating."""
    # Drawn at once: what is said from now on stands above the phase that it belongs to.
    self.bar.update(self.task, description=f"{name}{self._where()}", refresh=True)
    if self.bar.disable and name in ("reading", "tokenising", "compiling"):
      self.say(name)
    self._write(phase=name)

  def begin_group(self, seeds: Sequence[int], finished: int, groups: int, epochs: int) -> None:
    """Begins a group of seeds after `finished` of `groups`, each of at most `epochs` epochs."""
    self.finished_groups, self.groups, self.epochs = finished, groups, epochs
    self.status.pop("best", None)
    if processes.first():
      self.in_steps = step_seconds(self.workdir)
    self.say(f"{self.workdir}: seeds {', '.join(map(str, seeds))}")

  def begin_epoch(self, epoch: int, done: int, steps: int) -> None:
    """Begins an epoch (from 0) of `steps` steps, of which `done` are done."""
    self.epoch, self.steps, self.done = epoch + 1, steps, done
    total = self.groups * self.epochs * steps
    self.bar.update(self.task, total=total, completed=self._completed(), state="")
    self.phase("training" if self.compiled else "compiling")

  def step(self, done: int, row: dict[str, float]) -> None:
    """Shows that `done` steps of the epoch are done; `row` holds means over the most recent ones."""
    self.in_steps += row["seconds_per_step"] * (done - self.done)
    self.compiled = True
    left = self.stop(done)
    state = f"loss {row['loss']:.4g}  {row['seconds_per_step']:.2f} s/step"
    if left:
      state += f"  {duration(left)} left"
    where = f"training{self._where()}"
    self.bar.update(self.task, description=where, state=state, refresh=True)
    due = time.monotonic() - self.printed > self.seconds or done == self.steps
    if self.bar.disable and due:
      self.printed = time.monotonic()
      self.say(f"{where}  {done}/{self.steps}  {state}")

  def stop(self, done: int) -> float | None:
    """Records that `done` steps of the epoch are done; returns the seconds that are left."""
    self.done = done
    self.bar.update(self.task, completed=self._completed())
    left = self.bar.tasks[0].time_remaining
    total = self.groups * self.epochs * self.steps
    self._write(step=self._completed(), steps=total, epoch=self.epoch, seconds_left=left)
    return left

  def evaluated(
    self, epoch: int, name: str, values: Sequence[float], improved: Sequence[bool]
  ) -> None:
    """Shows the selection metric of every seed after `epoch` epochs."""
    mean = sum(values) / len(values)
    best = max(mean, self.status.get("best", mean))
    self._write(now=True, metric=name, value=mean, best=best)
    shown = "  ".join(f"{v:.4f}{' (best)' * b}" for v, b in zip(values, improved))
    self.say(f"after {epoch} epoch{'s' * (epoch != 1)}  {name} {shown}")

  def goodput(self) -> float:
    """Returns the share of the time since the first start that was spent in steps which count."""
    return round(self.in_steps / max(time.time() - self.status["began"], 1e-9), 4)

  def _completed(self) -> int:
    return (self.finished_groups * self.epochs + self.epoch - 1) * self.steps + self.done

  def _where(self) -> str:
    if not self.epoch:
      return ""
    run = f", run {self.finished_groups + 1} of {self.groups}" * (self.groups > 1)
    return f"  epoch {self.epoch} of {self.epochs}{run}"

  def _write(self, *, now: bool = False, **values: Any) -> None:
    """Takes values over, and writes `status.json` if it is time or `now`."""
    self.status |= values
    if processes.first() and (now or time.monotonic() - self.written > self.seconds):
      self.written = time.monotonic()
      self.status |= {"time": time.time(), "goodput": self.goodput()}
      write_whole(self.workdir / NAME, seal(self.status))


def read_status(workdir: epath.PathLike) -> dict[str, Any]:
  """Reads the status of a run; {} where it has none, or a damaged one."""
  try:
    return unseal((epath.Path(workdir) / NAME).read_text())
  except (OSError, ValueError):
    return {}


def duration(seconds: float) -> str:
  """Formats seconds as a person says them: 40 s, 12 min, 3.5 h."""
  if seconds < 90:
    return f"{seconds:.0f} s"
  return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
