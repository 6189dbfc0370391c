"""The progress of a run: a bar over the whole run on a terminal, a few plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from etils import epath

from as2jax.runtime import preemption, processes
from as2jax.training import status
from as2jax.training.status import StatusFile


class Display:
  """Names the phase of a run, and how far it is: on a terminal (rich), in lines now and then, and in
  the run's `status.json`.

  The time that is left counts steps and evaluations, whose times are means of those seen. The
  first step and the first evaluation, which compile, count in no mean.
  """

  def __init__(self, config: Any, workdir: epath.PathLike):
    self.seconds, self.workdir = config.seconds, workdir
    self.status = StatusFile(workdir, config.seconds)
    self.best: float | None = None  # of the metric that selects
    self.epochs = self.steps = self.runs = self.before = self.number = self.done = 0
    self.bar: Any = None  # of rich, with its task
    self.task: Any = None
    self.last = time.monotonic()
    # Where timing began in this epoch (time, step, examples); None before the first step has compiled.
    self.began: tuple[float, int, int] | None = None
    self.compiled = False
    self.per_step = self.rate = self.per_evaluation = 0.0  # seconds, examples/s, seconds
    self.evaluating: float | None = None
    self.evaluated_before = False

  def __enter__(self) -> "Display":
    if processes.first() and sys.stderr.isatty():
      from rich.console import Console
      from rich.progress import BarColumn, Progress, TextColumn

      text = lambda field: TextColumn(field, markup=False)
      self.bar = Progress(
        text("{task.description}"),
        BarColumn(),
        text("{task.percentage:.0f} %"),
        text("{task.fields[state]}"),
        console=Console(stderr=True, markup=False, emoji=False, highlight=False),
      )
      self.bar.start()
      self.task = self.bar.add_task("", total=None, state="")
    return self

  def __exit__(self, kind, error, trace) -> None:
    if self.bar is not None:
      self.bar.stop()
    if error is None:
      self.status.write(now=True, state=status.FINISHED, phase=None, seconds_left=None)
      return
    with contextlib.suppress(OSError):  # of a full disk: it would hide what ended the run
      if isinstance(error, (preemption.Preempted, KeyboardInterrupt)):
        self.status.write(now=True, state=status.STOPPED)
      else:
        text = " ".join(str(error).split()) or type(error).__name__
        self.status.write(now=True, state=status.FAILED, error=text[:1000])

  def say(self, text: str) -> None:
    """Prints a line above the bar."""
    if self.bar is not None:
      self.bar.console.print(text)
    elif processes.first():
      print(text, file=sys.stderr, flush=True)

  def phase(self, name: str) -> None:
    """What begins now: reading, tokenising, compiling, training, evaluating."""
    if self.bar is not None:
      # Drawn at once: what is said from now on stands above the phase that it belongs to.
      self.bar.update(self.task, description=f"{name}{self._where()}", refresh=True)
    elif name in ("reading", "tokenising", "compiling"):
      self.say(name)
    if name == "evaluating":
      self.evaluating = time.monotonic()
    self.status.write(phase=name)

  def seeds(self, seeds: Sequence[int], done: int, runs: int, epochs: int) -> None:
    """A group of seeds begins, after `done` of `runs`, each of at most `epochs` epochs."""
    self.before, self.runs, self.epochs = done, runs, epochs
    self.best = None
    self.status.begin()
    names = ", ".join(map(str, seeds))
    self.say(f"{self.workdir}: seed{'s' if len(seeds) > 1 else ''} {names}")

  def epoch(self, epoch: int, begin: int, steps: int, examples: int) -> None:
    """A new epoch of `steps` steps begins at step `begin`, after `examples` of its examples."""
    self.number, self.steps, self.done = epoch + 1, steps, begin
    self.began = (time.monotonic(), begin, examples) if self.compiled else None
    self.phase("training" if self.compiled else "compiling")
    self._show("")

  def step(self, done: int, row: dict[str, float], examples: int) -> None:
    """`done` steps of the epoch are finished; `row` holds means over the most recent ones.

    Args:
      examples: of the epoch so far.

    """
    now = time.monotonic()
    if self.began is None:  # what was before it has compiled
      self.began, self.compiled = (now, done, examples), True
    elif done > self.began[1]:
      self.per_step = (now - self.began[0]) / (done - self.began[1])
      self.rate = (examples - self.began[2]) / (now - self.began[0])
    self.status.in_steps += row["seconds_per_step"] * (done - self.done)
    self.done = done
    self.status.write(
      **self._position(), seconds_left=round(self._left()) if self.per_step else None
    )
    state = [f"loss {row['loss']:.4g}"]
    if self.per_step:
      state += [f"{self.rate:.0f} examples/s", f"{duration(self._left())} left"]
    else:
      state.append(f"{row['seconds_per_step']:.2f} s/step")
    if self.bar is not None:
      self.bar.update(self.task, description=f"training{self._where()}")
      self._show("  ".join(state))
    elif now - self.last > self.seconds or done == self.steps:
      self.last = now
      self.say(f"training{self._where()}  {done}/{self.steps}  {'  '.join(state)}")

  def stops(self, done: int) -> None:
    """The run stops after `done` steps of the epoch."""
    self.done = done
    self.status.write(**self._position())

  def evaluated(self, epoch: int, name: str, values: Sequence[float], best: Sequence[bool]) -> None:
    """The selection metric of every seed after `epoch` epochs."""
    if self.evaluating is not None and self.evaluated_before:
      self.per_evaluation = time.monotonic() - self.evaluating
    self.evaluated_before = True
    mean = sum(values) / len(values)
    self.best = mean if self.best is None else max(self.best, mean)
    self.status.write(now=True, metric=name, value=mean, best=self.best)
    shown = "  ".join(f"{v:.4f}{' (best)' if b else ''}" for v, b in zip(values, best))
    self.say(f"after {epoch} epoch{'' if epoch == 1 else 's'}  {name} {shown}")

  def _position(self) -> dict[str, Any]:
    total = self.runs * self.epochs * self.steps
    return {"step": total - self._steps_left(), "steps": total, "epoch": self.number}

  def _where(self) -> str:
    if not self.number:
      return ""
    run = f", run {self.before + 1} of {self.runs}" if self.runs > 1 else ""
    return f"  epoch {self.number} of {self.epochs}{run}"

  def _left(self) -> float:
    """Seconds to the end of the last epoch, if early stopping does not end it before."""
    return self._steps_left() * self.per_step + (self._epochs_left() + 1) * self.per_evaluation

  def _epochs_left(self) -> int:
    """Epochs after the one that is under way, of all runs."""
    return self.epochs - self.number + (self.runs - self.before - 1) * self.epochs

  def _steps_left(self) -> int:
    return self.steps - self.done + self._epochs_left() * self.steps

  def _show(self, state: str) -> None:
    if self.bar is not None:
      finished = self.before * self.epochs + self.number - 1
      total = self.runs * self.epochs * self.steps
      completed = finished * self.steps + self.done
      self.bar.update(self.task, total=total, completed=completed, state=state, refresh=True)


def duration(seconds: float) -> str:
  """Seconds as a person says them: 40 s, 12 min, 3.5 h."""
  if seconds < 90:
    return f"{seconds:.0f} s"
  return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
