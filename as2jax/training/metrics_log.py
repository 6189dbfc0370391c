"""`metrics.jsonl` and TensorBoard: one row per seed and logged step."""

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.runtime import processes
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import make_durable, refuse_others, write_whole

SEGMENT = 1 << 16  # bytes after which a log that cannot be appended to goes on in another file
TAKEN = "taken"  # beside a step's scalars: whether each seed has taken the step


class MetricsLog:
  """Writes `metrics.jsonl` and TensorBoard's files; only the first process does.

  Rows after a restored step are dropped, so that a resumed run leaves the same log as one that was
  never interrupted. Rows are appended, so that a flush costs the same however long the log is.
  Object stores cannot append: there the log goes on in `metrics-00001.jsonl` and so on, each begun
  when the one before has `SEGMENT` bytes, and a flush writes the last of them whole.
  """

  def __init__(self, workdir: epath.PathLike, *, tensorboard: bool):
    self.path = epath.Path(workdir) / "metrics.jsonl"
    self.folder = epath.Path(workdir) / "tensorboard"
    self.tensorboard = tensorboard and processes.first()
    self.appends = "://" not in str(self.path)
    self.pending = ""  # rows that are not on disk
    self.closed = 0  # segments before the open one
    self.segment = ""  # what the open segment holds, where it cannot be appended to
    self.writers: dict[int, Any] = {}

  def _segment(self, number: int) -> epath.Path:
    return self.path.with_name(f"metrics-{number:05d}.jsonl") if number else self.path

  def roll_back(self, seeds: Sequence[int], step: int, *, evaluated: bool = True) -> None:
    """Drops the rows of these seeds after `step`, and a last row that a kill left incomplete.

    Args:
      seeds: those that go on.
      step: the last one that counts.
      evaluated: whether the evaluation at `step` counts, or will be made again.

    Raises:
      InputError: a line is no row.

    """

    def counts(row: dict) -> bool:
      last = step if evaluated or "epoch" not in row else step - 1
      return row["seed"] not in seeds or row["step"] <= last

    if processes.first():
      self.flush()
      number = 0
      while self._segment(number).exists():
        self.closed = number
        self.segment = _filtered(self._segment(number), counts)
        number += 1
      if self.appends:
        self.segment = ""
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
      if len(self.segment) >= SEGMENT:
        self.closed, self.segment = self.closed + 1, ""
      write_whole(self._segment(self.closed), self.segment + self.pending)
      self.segment += self.pending
    self.pending = ""
    if durable and self.appends and processes.first() and self.path.exists():
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

  A step's scalars are read after the next step has been dispatched, so that reading costs no time.
  This also bounds how far a host runs ahead: step i is dispatched when step i - 2 has ended on all
  devices. So no process is more than two steps ahead of another, and the point at which all agree
  to end (see `preemption`) is at most that far away.

  Args:
    seeds: those that train together.
    metrics_log: takes the rows.
    explain: (questions of a step) → what else to say of a loss that is not finite.
    unwritten: `unwritten()` of the log before, where a run goes on.

  """

  def __init__(
    self,
    seeds: Sequence[int],
    metrics_log: MetricsLog,
    explain: Callable[[set[int]], str],
    unwritten: Sequence[dict[str, Sequence[float]]] = (),
  ):
    self.seeds, self.log, self.explain = seeds, metrics_log, explain
    self.pending: tuple | None = None
    self.values = []
    for row in unwritten:
      self.values.append({name: np.asarray(value, np.float32) for name, value in row.items()})
    self.began = time.monotonic()

  def add(self, step: int, scalars: Any, questions: Sequence[set[int]], padding: Any) -> None:
    """Adds a step's scalars `[seed]`; questions and share of padding are those of its batch, by seed.

    A seed without questions does not take the step: it has stopped, or its epoch has fewer steps.

    Raises:
      InputError: the loss of the step before is not finite.

    """
    self._read()
    self.pending = (step, {**scalars, "padding": np.asarray(padding, np.float32)}, questions)

  def _read(self) -> None:
    if self.pending is None:
      return
    step, scalars, questions = self.pending
    values = {name: np.asarray(v) for name, v in scalars.items()}
    values[TAKEN] = np.asarray([bool(of_seed) for of_seed in questions])
    for i, seed in enumerate(self.seeds):
      finite = np.isfinite(values["loss"][i]) and np.isfinite(values["gradient_norm"][i])
      if questions[i] and not finite:
        raise InputError(
          f"step {step}, seed {seed}: the loss is {values['loss'][i]} (gradient norm "
          f"{values['gradient_norm'][i]}) {self.explain(questions[i])}"
        )
    self.values.append(values)
    self.pending = None

  def unwritten(self) -> list[dict[str, list[float]]]:
    """Returns the steps since the last row, as JSON data from which a `StepLog` can go on."""
    self._read()
    return [{name: value.tolist() for name, value in row.items()} for row in self.values]

  def write(self, step: int) -> dict[str, float]:
    """Writes a row per seed, with means since the last row; returns the first that has a loss.

    The mean of a scalar is over the steps that have it and that the seed has taken. A seed that has
    taken none has `seconds_per_step` alone.
    """
    self._read()
    seconds = time.monotonic() - self.began
    shown: dict[str, float] = {}
    for i, seed in enumerate(self.seeds):
      # A run that goes on may log other names than the steps before it did: log.gradient_norms.
      by_name: dict[str, list[np.ndarray]] = {}
      for values in self.values:
        if TAKEN not in values or values[TAKEN][i]:
          for name, value in values.items():
            if name != TAKEN:
              by_name.setdefault(name, []).append(value[i])
      row = {name: float(np.mean(values)) for name, values in by_name.items()}
      row["seconds_per_step"] = seconds / len(self.values)
      self.log.write(seed, step, row)
      if "loss" in row and not shown:
        shown = row
    self.values, self.began = [], time.monotonic()
    self.log.flush()
    return shown


def step_seconds(workdir: epath.PathLike) -> float:
  """Returns the seconds of all steps in a run's log; steps of seeds that train together count once.

  Steps that a restart repeats count once, as the log is rolled back before it goes on.
  """
  seconds, last, seen = 0.0, {}, set()
  for path in segments(workdir):
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
      row = _row(line, f"{path}:{number}")
      if "seconds_per_step" in row:
        steps = row["step"] - last.get(row["seed"], 0)
        last[row["seed"]] = row["step"]
        if (row["step"], row["seconds_per_step"]) not in seen:
          seen.add((row["step"], row["seconds_per_step"]))
          seconds += steps * row["seconds_per_step"]
  return seconds


def segments(workdir: epath.PathLike) -> list[epath.Path]:
  """Returns the files of a run's log, in order: one, but in object stores."""
  workdir = epath.Path(workdir)
  first = workdir / "metrics.jsonl"
  return [first, *sorted(workdir.glob("metrics-*.jsonl"))] if first.exists() else []


def tag(name: str) -> str:
  """Returns a value's name in TensorBoard, which groups by what stands before the slash.

  `map[wikiqa-clean/dev]` is `dev/map_wikiqa-clean`; a name without a split is of training.
  """
  match = re.fullmatch(r"([^\[]+)\[(.+)/([^/\]]+)\]", name)
  return f"{match[3]}/{match[1]}_{match[2]}" if match else f"train/{name}"


def _filtered(path: epath.Path, counts: Callable[[dict], bool]) -> str:
  """Drops the rows of a file that do not count; returns the content.

  A last line without its line feed, which a kill in the middle of a write leaves, is dropped.
  """
  refuse_others(path)
  data = path.read_bytes()
  lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
  counted = []
  for number, line in enumerate(lines, 1):
    if counts(_row(line, f"{path}:{number}")):
      counted.append(line)
  left = b"".join(counted)
  if left != data:
    write_whole(path, left.decode())
  return left.decode()


def _row(line: bytes, where: str) -> dict:
  try:
    row = json.loads(line.decode())
  except (ValueError, RecursionError) as error:
    raise InputError(
      f"{where}: not JSON ({error}); was it changed by hand? Delete the line"
    ) from error
  if not isinstance(row, dict) or not all(type(row.get(key)) is int for key in ("seed", "step")):
    raise InputError(f"{where}: no row of the log; was it changed by hand? Delete the line")
  return row


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
