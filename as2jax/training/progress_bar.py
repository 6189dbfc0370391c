"""The progress of a run: a progress bar on a terminal, a few plain lines elsewhere."""

import sys
import time
from collections.abc import Sequence
from typing import Any

from etils import epath

from as2jax.runtime import processes


class Display:
  """A bar per epoch (rich, on a terminal) or a line every `log.seconds` (a log file)."""

  def __init__(self, config: Any, workdir: epath.PathLike, seeds: Sequence[int]):
    self.seconds, self.workdir = config.seconds, workdir
    self.seeds, self.bar, self.task = seeds, None, None
    self.last = time.monotonic()

  def __enter__(self) -> "Display":
    names = ", ".join(map(str, self.seeds))
    self._say(f"{self.workdir}: seed{'s' if len(self.seeds) > 1 else ''} {names}")
    if processes.first() and sys.stderr.isatty():
      from rich.console import Console
      from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
      )

      self.bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
        console=Console(stderr=True),
      )
      self.bar.start()
    return self

  def __exit__(self, *error) -> None:
    if self.bar is not None:
      self.bar.stop()

  def _say(self, text: str) -> None:
    if self.bar is not None:
      self.bar.console.print(text, highlight=False)
    elif processes.first():
      print(text, file=sys.stderr, flush=True)

  def epoch(self, epoch: int, begin: int, steps: int) -> None:
    """A new epoch of `steps` steps begins at step `begin`."""
    self.number, self.steps = epoch + 1, steps
    if self.bar is not None:
      if self.task is not None:
        self.bar.remove_task(self.task)
      self.task = self.bar.add_task(f"epoch {epoch + 1}", total=steps, completed=begin, state="")

  def step(self, done: int, row: dict[str, float]) -> None:
    """`done` steps of the epoch are finished; `row` holds means over the most recent ones."""
    state = f"loss {row['loss']:.4g}  {row['seconds_per_step']:.2f} s/step"
    if self.bar is not None:
      self.bar.update(self.task, completed=done, state=state)
    elif time.monotonic() - self.last > self.seconds or done == self.steps:
      self.last = time.monotonic()
      self._say(f"epoch {self.number}  {done}/{self.steps}  {state}")

  def evaluated(self, epoch: int, name: str, values: Sequence[float], best: Sequence[bool]) -> None:
    """The selection metric of every seed after `epoch` epochs."""
    shown = "  ".join(f"{v:.4f}{' (best)' if b else ''}" for v, b in zip(values, best))
    self._say(f"after {epoch} epoch{'' if epoch == 1 else 's'}  {name} {shown}")
