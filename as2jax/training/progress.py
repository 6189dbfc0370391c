"""Progress of training and indexing: a bar on a terminal and in notebooks with ipywidgets, lines elsewhere."""

import importlib.util
import sys
import time
from collections.abc import Sequence

from as2jax.runtime import processes
from as2jax.runtime.streams import visible


class Progress:
  """Shows what is being done and how far it is; only the first process does.

  Args:
    seconds: between two lines, where there is no terminal.

  """

  def __init__(self, seconds: float):
    from rich import progress
    from rich.console import Console

    self.seconds, self.printed, self.compiled = seconds, -float("inf"), False
    self.where, self.steps, self.before = "", 0, 0  # steps of the epoch, and before it
    text = lambda field: progress.TextColumn(field, markup=False)
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    notebook = console.is_jupyter and importlib.util.find_spec("ipywidgets")
    self.bar = progress.Progress(
      text("{task.description}"),
      progress.BarColumn(),
      text("{task.percentage:.0f} %"),
      text("{task.fields[state]}"),
      console=console,
      speed_estimate_period=600.0,
      disable=not (processes.first() and (sys.stderr.isatty() or notebook)),
      get_time=lambda: time.monotonic(),
    )
    self.task = self.bar.add_task("", total=None, state="")

  def __enter__(self) -> "Progress":
    self.bar.start()
    return self

  def __exit__(self, *_) -> None:
    if not self.bar.disable:
      self.bar.stop()

  def say(self, text: str) -> None:
    """Prints a line, above the bar where there is one."""
    if not self.bar.disable:
      self.bar.console.print(visible(text))
    elif processes.first():
      print(visible(text), file=sys.stderr, flush=True)

  def phase(self, name: str) -> None:
    """Shows what begins; where there is no terminal, not each epoch's training and evaluation."""
    # Drawn at once: what is said from now on stands above the phase that it belongs to.
    self.bar.update(self.task, description=f"{name}{self.where}", refresh=True)
    if self.bar.disable and name not in ("training", "evaluating"):
      self.say(name)

  def count(self, name: str, done: int, total: int) -> None:
    """Shows how many of all are done, by a bar or by lines."""
    told = f"{name} {done} of {total}"
    length = total if done else None
    self.bar.update(self.task, description=told, completed=done, total=length, refresh=True)
    if self.bar.disable and 0 < done < total:
      self.say(told)

  def begin_epoch(self, epoch: int, epochs: int, done: int, steps: int) -> None:
    """Begins an epoch (from 0) of `steps` steps, of which `done` are done."""
    self.where, self.steps = f"  epoch {epoch + 1} of {epochs}", steps
    self.before = epoch * steps
    self.bar.update(self.task, total=epochs * steps, completed=self.before + done, state="")
    self.phase("training" if self.compiled else "compiling")

  def step(self, done: int, row: dict[str, float]) -> None:
    """Shows that `done` steps of the epoch are done; `row` holds means over the most recent ones."""
    self.compiled = True
    self.bar.update(self.task, completed=self.before + done)
    state = f"loss {row['loss']:.4g}  {row['seconds_per_step']:.2f} s/step"
    left = self.bar.tasks[0].time_remaining
    if left:
      state += f"  {duration(left)} left"
    self.bar.update(self.task, description=f"training{self.where}", state=state, refresh=True)
    due = time.monotonic() - self.printed > self.seconds or done == self.steps
    if self.bar.disable and due:
      self.printed = time.monotonic()
      self.say(f"training{self.where}  {done}/{self.steps}  {state}")

  def evaluated(
    self, epoch: int, name: str, values: Sequence[float], improved: Sequence[bool]
  ) -> None:
    """Shows the selection metric of every seed after `epoch` epochs."""
    shown = "  ".join(f"{v:.4f}{' (best)' * b}" for v, b in zip(values, improved))
    self.say(f"after {epoch} epoch{'s' * (epoch != 1)}  {name} {shown}")


def duration(seconds: float) -> str:
  """Formats seconds as a person says them: 40 s, 12 min, 3.5 h."""
  if seconds < 90:
    return f"{seconds:.0f} s"
  return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
