"""The folder of a run: its config and its logs."""

import collections
import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from etils import epath

from as2jax.config.overrides import FREE_KEYS, differences, flatten
from as2jax.runtime import checksums, processes, regular_files
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

log = logging.getLogger(__name__)
SEEDS = (
  "Seeds can be added after those that are there (to a single one in a local folder only), and the last that "
  "have not begun can be left out, down to two; not with seeds_parallel"
)
SEGMENT = 1 << 16  # bytes after which a log that cannot be appended to goes on in another file


def begun(workdir: epath.PathLike) -> bool:
  """Whether the folder holds results or checkpoints, which belong to one config."""
  workdir = epath.Path(workdir)
  saved = (
    path
    for pattern in ("latest/*", "best/*", "*/latest/*", "*/best/*")
    for path in (workdir / "checkpoints").glob(pattern)
  )
  return (workdir / "results.json").exists() or any(path.name.isdigit() for path in saved)


def claim(workdir: epath.PathLike, config: Any) -> bool:
  """Writes the resolved config into a new run's folder, or checks it against the run's config.

  A folder counts as new until its run has saved something, so that it can be used again after a
  mistake in the config was corrected.

  Returns:
    Whether the folder's config is this one. It is not where seeds are added to those that train one by
    one, or left out that have not begun: that changes nothing before `change_seeds` is called.

  Raises:
    InputError: the folder holds a run of another config; the message lists the differences.

  """
  path = epath.Path(workdir) / "config.json"
  text = config.to_json(indent=2)
  if not (path.exists() and begun(workdir)):
    write_whole(path, text + "\n")
    return True
  old, new = flatten(_read(path)), flatten(json.loads(text))
  changed = differences(old, new)
  seeds_alone = not differences(old, new, (*FREE_KEYS, "seeds"))
  if changed and not (seeds_alone and _may_change_seeds(epath.Path(workdir), old, new)):
    raise InputError(
      f"{workdir} holds a run of another config:\n"
      + "\n".join(changed)
      + ("\n" + SEEDS if seeds_alone else "")
      + "\nGive another --workdir, or repeat that run with "
      f"--config=rerun:{path}"
    )
  return not changed


def change_seeds(workdir: epath.PathLike, config: Any) -> None:
  """Gives a run the seeds of a config that `claim` has checked; without results, it goes on.

  What a single seed has left becomes that of one of several. Killed half-way, it begins again, as the
  config is written last.
  """
  workdir = epath.Path(workdir)
  path = workdir / "config.json"
  before = _read(path)["seeds"]
  if before == list(config.seeds):
    return
  log.info("%s had the seeds %s", workdir, ", ".join(map(str, before)))
  for name in ("results.json", "report.html"):
    (workdir / name).unlink(missing_ok=True)
  if len(before) == 1:
    for folder in (workdir / "checkpoints", workdir / "diagnostics", *(workdir / "eval").glob("*")):
      own = folder / f"seed-{before[0]}"
      for left in [left for left in folder.glob("*") if left.name != own.name]:
        own.mkdir(exist_ok=True)
        left.rename(own / left.name)
  write_whole(path, config.to_json(indent=2) + "\n")


def _may_change_seeds(workdir: epath.Path, old: dict[str, Any], new: dict[str, Any]) -> bool:
  """Whether seeds are added at the end, or left out there that have not begun."""
  before, now = old["seeds"], new["seeds"]
  both = min(len(before), len(now))
  if new["seeds_parallel"] or before[:both] != now[:both]:
    return False
  if (
    len(before) == 1
  ):  # what it has left lies in no folder of it, and object stores cannot rename those
    return "://" not in str(workdir)
  return len(now) > 1 and not any(
    (workdir / "checkpoints" / f"seed-{seed}").exists() for seed in before[both:]
  )


def _read(path: epath.Path) -> dict[str, Any]:
  return regular_files.read_object(path, "it was changed by hand; give another --workdir")


class MetricsLog:
  """`metrics.jsonl` and TensorBoard: one row per seed and logged step.

  Rows after a restored step are dropped, so that a resumed run leaves the same log as one that was
  never interrupted. Rows are appended, so that a flush costs the same however long the log is.
  Object stores cannot append: there the log goes on in `metrics-00001.jsonl` and so on, each begun
  when the one before has `SEGMENT` bytes, and a flush writes the last of them whole.
  """

  def __init__(self, workdir: epath.PathLike, *, tensorboard: bool, config: Any = None):
    self.path = epath.Path(workdir) / "metrics.jsonl"
    self.folder = epath.Path(workdir) / "tensorboard"
    self.tensorboard = tensorboard and processes.first()
    self.hyperparameters = {} if config is None else _hyperparameters(config)
    self.appends = "://" not in str(self.path)
    self.pending = ""  # rows that are not on disk; only the first process has any
    self.closed = 0  # segments before the open one
    self.segment = ""  # what the open segment holds, where it cannot be appended to
    self.writers: dict[int, Any] = {}
    self.rows: collections.Counter[int] = collections.Counter()  # of each seed

  def _segment(self, number: int) -> epath.Path:
    return self.path.with_name(f"metrics-{number:05d}.jsonl") if number else self.path

  def roll_back(
    self, seeds: Sequence[int], step: int, *, evaluated: bool = True, rows: int = 0
  ) -> None:
    """Drops the rows of these seeds after `step`, and a last row that a kill left incomplete.

    Args:
      evaluated: whether the evaluation at `step` counts, or will be made again.
      rows: how many of these seeds there were when `step` was saved; a warning says what is lost.

    Raises:
      InputError: a line is no row.

    """
    if processes.first():
      self.flush()
      last = lambda row: step if evaluated or "epoch" not in row else step - 1
      kept = lambda row: row["seed"] not in seeds or row["step"] <= last(row)
      number = 0
      self.rows.clear()
      while self._segment(number).exists():
        self.closed = number
        self.segment = _filtered(self._segment(number), kept, self.rows)
        number += 1
      if self.appends:
        self.segment = ""
      if (lost := rows - self.count(seeds)) > 0:
        log.warning("%s has lost %d rows from before step %d", self.path, lost, step + 1)
    if self.tensorboard:
      from tensorboardX import SummaryWriter
      from tensorboardX.summary import hparams

      for seed in seeds:
        self.writers[seed] = SummaryWriter(str(self.folder / f"seed-{seed}"), purge_step=step + 1)
        for entry in hparams(self.hyperparameters, {}):
          self.writers[seed].file_writer.add_summary(entry)

  def write(self, seed: int, step: int, values: dict[str, float]) -> None:
    """Adds a row; `flush` writes it to disk."""
    if processes.first():
      self.pending += json.dumps({"seed": seed, "step": step, **values}) + "\n"
      self.rows[seed] += 1
    if seed in self.writers:
      for name, value in values.items():
        self.writers[seed].add_scalar(tag(name), value, step)

  def count(self, seeds: Sequence[int]) -> int:
    """Number of rows of these seeds; only the first process has any."""
    return sum(self.rows[seed] for seed in seeds)

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
      checksums.make_durable(self.path)
    for writer in self.writers.values():
      writer.flush()

  def close(self) -> None:
    """Writes all rows to disk and closes TensorBoard's files."""
    self.flush()
    for writer in self.writers.values():
      writer.close()


def step_seconds(workdir: epath.PathLike) -> float:
  """Seconds that the steps took which the log of a run has; steps of seeds that train together once.

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
  """The files of a run's log, in order: one, but in object stores."""
  workdir = epath.Path(workdir)
  first = workdir / "metrics.jsonl"
  return [first, *sorted(workdir.glob("metrics-*.jsonl"))] if first.exists() else []


def tag(name: str) -> str:
  """A value's name in TensorBoard, which groups by what stands before the slash.

  `map[wikiqa-clean/dev]` is `dev/map_wikiqa-clean`; a name without a split is of training.
  """
  match = re.fullmatch(r"([^\[]+)\[(.+)/([^/\]]+)\]", name)
  return f"{match[3]}/{match[1]}_{match[2]}" if match else f"train/{name}"


def _hyperparameters(config: Any) -> dict[str, Any]:
  """The flat config, of values that TensorBoard shows as they are and texts of the others."""
  plain = lambda value: value if isinstance(value, (bool, int, float, str)) else repr(value)
  return {key: plain(value) for key, value in flatten(json.loads(config.to_json())).items()}


def _filtered(
  path: epath.Path, kept: Callable[[dict], bool], rows: collections.Counter[int]
) -> str:
  """Leaves in a file of rows those that are `kept`; counts them by seed, returns its new content.

  A last line without its line feed, which a kill in the middle of a write leaves, is dropped.
  """
  regular_files.refuse_others(path)
  data = path.read_bytes()
  lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
  pairs = [(line, _row(line, f"{path}:{i}")) for i, line in enumerate(lines, 1)]
  pairs = [(line, row) for line, row in pairs if kept(row)]
  rows.update(row["seed"] for _, row in pairs)
  left = b"".join(line for line, _ in pairs)
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
