"""`metrics.jsonl` and TensorBoard: one row per seed and logged step."""

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.runtime import bound, processes
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import make_durable, refuse_others, write_whole

NAME = "metrics.jsonl"
TAKEN = "taken"  # beside a step's scalars: whether each seed has taken the step
SECONDS = "seconds"  # beside those of the last unwritten step: since the last row


class MetricsLog:
  """Writes `metrics.jsonl` and TensorBoard's files; only the first process does.

  A resumed run leaves the same log as one that was never interrupted. Rows are appended; object stores
  cannot append, so that a flush writes all rows there.
  """

  def __init__(self, workdir: epath.PathLike, *, tensorboard: bool):
    self.path = epath.Path(workdir) / NAME
    self.folder = epath.Path(workdir) / "tensorboard"
    self.tensorboard = tensorboard and processes.first()
    self.appends = "://" not in str(self.path)
    self.pending = ""  # rows that are not on disk
    self.writers: dict[int, Any] = {}

  def roll_back(self, seeds: Sequence[int], step: int, *, evaluated: bool = True) -> None:
    """Drops the rows of these seeds after `step`, and a last row that a kill left incomplete.

    Args:
      evaluated: whether the evaluation at `step` counts, or will be made again.

    """
    if processes.first():
      self.flush()
      text = ""
      for line, row in rows(self.path):
        last = step if evaluated or "epoch" not in row else step - 1
        if row["seed"] not in seeds or row["step"] <= last:
          text += line
      if self.path.exists():
        write_whole(self.path, text)
    if self.tensorboard:
      from tensorboardX import SummaryWriter

      for seed in seeds:
        self.writers[seed] = SummaryWriter(str(self.folder / f"seed-{seed}"), purge_step=step + 1)

  def write(self, seed: int, step: int, values: dict[str, float]) -> None:
    """Adds a row; `flush` writes it to disk."""
    if processes.first():
      self.pending += json.dumps({"seed": seed, "step": step, **values}) + "\n"
    if seed in self.writers:
      for name, value in values.items():
        self.writers[seed].add_scalar(tag(name), value, step)

  def flush(self, *, durable: bool = False) -> None:
    """Writes the rows that are not on disk yet; `durable` makes them outlast a power failure."""
    if self.pending and self.appends:
      _append(self.path, self.pending)
    elif self.pending:
      before = self.path.read_text() if self.path.exists() else ""
      write_whole(self.path, before + self.pending)
    self.pending = ""
    if durable and processes.first() and self.path.exists():
      make_durable(self.path)
    for writer in self.writers.values():
      writer.flush()

  def close(self) -> None:
    """Writes all rows to disk and closes TensorBoard's files."""
    self.flush()
    for writer in self.writers.values():
      writer.close()


class StepLog:
  """Collects the scalars of steps since the last row of the log; stops a run of non-finite loss.

  A step's scalars are read after the next step has been dispatched: reading costs no time, and step i is
  dispatched when step i - 2 has ended on all devices. So no process is more than two steps ahead of another,
  nor is the point at which all agree to end (see `preemption`).

  Args:
    unwritten: `unwritten()` of the log before, where a run goes on.

  """

  def __init__(
    self,
    seeds: Sequence[int],
    metrics_log: MetricsLog,
    unwritten: Sequence[dict[str, Sequence[float]]] = (),
  ):
    self.seeds, self.log = seeds, metrics_log
    self.pending: tuple | None = None
    self.values, self.began = [], time.monotonic()
    for row in unwritten:
      values = {name: np.asarray(value, np.float32) for name, value in row.items()}
      self.began -= float(values.pop(SECONDS, 0.0))
      self.values.append(values)

  def add(self, step: int, scalars: Any, taken: Any, padding: Any) -> None:
    """Adds a step's scalars `[seed]`, which seeds take it, and the share of padding in its batch."""
    self._read()
    further = {"padding": np.asarray(padding, np.float32), TAKEN: np.asarray(taken)}
    self.pending = (step, {**scalars, **further})

  def _read(self) -> None:
    if self.pending is None:
      return
    step, scalars = self.pending
    values = {name: np.asarray(v) for name, v in scalars.items()}
    finite = np.isfinite(values["loss"]) & np.isfinite(values["gradient_norm"])
    for i in np.flatnonzero(values[TAKEN] & ~finite):
      raise InputError(
        f"step {step}, seed {self.seeds[i]}: the loss is {values['loss'][i]} (gradient norm "
        f"{values['gradient_norm'][i]}): training has diverged. Lower optimizer.rate, in another folder"
      )
    self.values.append(values)
    self.pending = None

  def unwritten(self) -> list[dict[str, list[float]]]:
    """Returns the steps since the last row, as JSON data from which a `StepLog` can go on."""
    self._read()
    steps = [{name: value.tolist() for name, value in row.items()} for row in self.values]
    if steps:
      steps[-1][SECONDS] = time.monotonic() - self.began
    return steps

  def write(self, step: int) -> dict[str, float]:
    """Writes a row per seed, with means since the last row; returns the first that has a loss.

    The mean is over the steps that the seed has taken.
    """
    self._read()
    seconds = (time.monotonic() - self.began) / len(self.values)
    shown: dict[str, float] = {}
    for i, seed in enumerate(self.seeds):
      taken = [values for values in self.values if values[TAKEN][i]]
      row = {}
      for name in taken[-1] if taken else ():
        if name != TAKEN:
          row[name] = float(np.mean([values[name][i] for values in taken]))
      row["seconds_per_step"] = seconds
      self.log.write(seed, step, row)
      if "loss" in row and not shown:
        shown = row
    self.values, self.began = [], time.monotonic()
    self.log.flush()
    return shown


def step_seconds(workdir: epath.PathLike) -> float:
  """Returns the seconds of all steps in a run's log; steps of seeds that train together count once."""
  last, by_row = {}, {}
  for _, row in rows(bound.file(workdir, NAME)):
    if "seconds_per_step" in row:
      steps = row["step"] - last.get(row["seed"], 0)
      last[row["seed"]] = row["step"]
      by_row.setdefault((row["step"], row["seconds_per_step"]), steps * row["seconds_per_step"])
  return sum(by_row.values())


def tag(name: str) -> str:
  """Returns a value's name in TensorBoard: `map[wikiqa-clean/dev]` is `dev/map_wikiqa-clean`."""
  match = re.fullmatch(r"([^\[]+)\[(.+)/([^/\]]+)\]", name)
  return f"{match[3]}/{match[1]}_{match[2]}" if match else f"train/{name}"


def rows(path: epath.Path) -> Iterator[tuple[str, dict]]:
  """Yields the lines of a log with their rows, but a last one that a kill left without its line feed."""
  refuse_others(path)
  data = path.read_bytes() if path.exists() else b""
  lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
  for number, line in enumerate(lines, 1):
    try:
      row = json.loads(line.decode())
      right = type(row["seed"]) is int and type(row["step"]) is int
    except (ValueError, RecursionError, TypeError, KeyError):
      right = False
    if not right:
      raise InputError(
        f"{path}:{number}: no row of the log; was it changed by hand? Delete the line"
      )
    yield line.decode(), row


def _append(path: epath.Path, text: str) -> None:
  """Appends all of `text` to a local file or, where the disk is full, nothing of it."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with open(path, "ab", buffering=0) as file:
    before, rest = file.seek(0, os.SEEK_END), text.encode()
    try:
      while rest:
        rest = rest[file.write(rest) :]
    except OSError:
      file.truncate(before)
      raise
