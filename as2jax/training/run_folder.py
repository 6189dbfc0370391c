"""The folder of a run: its lock, its config and its logs; files are written atomically."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from etils import epath

from as2jax.config.flat import differences, flatten
from as2jax.runtime import processes
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole


@contextlib.contextmanager
def lock(workdir: epath.PathLike) -> Iterator[None]:
  """Locks the run's folder; the system releases the lock however the process ends.

  With several processes, the first one holds the lock. Object stores cannot lock: nothing is
  checked there.

  Raises:
    InputError: another run holds the lock.

  """
  with contextlib.ExitStack() as held:
    processes.by_first(lambda: held.enter_context(_locked(epath.Path(workdir))))
    yield


@contextlib.contextmanager
def _locked(workdir: epath.Path) -> Iterator[None]:
  try:
    workdir.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise InputError(f"--workdir={workdir} cannot be made: {error}") from error
  if "://" in str(workdir):
    yield
    return
  import fcntl

  try:
    file = open(workdir / ".lock", "a+")
  except OSError as error:
    raise InputError(f"--workdir={workdir} cannot be written: {error}") from error
  with file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
      file.seek(0)
      raise InputError(
        f"--workdir={workdir} is in use by another process ({file.read().strip()}); "
        "wait for it, or give another --workdir"
      ) from error
    file.seek(0)
    file.truncate()
    file.write(f"pid {os.getpid()}")
    file.flush()
    yield


def begun(workdir: epath.PathLike) -> bool:
  """Whether the folder holds results or checkpoints, which belong to one config."""
  workdir = epath.Path(workdir)
  saved = (
    path
    for pattern in ("latest/*", "best/*", "*/latest/*", "*/best/*")
    for path in (workdir / "checkpoints").glob(pattern)
  )
  return (workdir / "results.json").exists() or any(path.name.isdigit() for path in saved)


def claim(workdir: epath.PathLike, config: Any) -> None:
  """Writes the resolved config into a new run's folder, or checks it against the run's config.

  A folder counts as new until its run has saved something, so that it can be used again after a
  mistake in the config was corrected.

  Raises:
    InputError: the folder holds a run of another config; the message lists the differences.

  """
  path = epath.Path(workdir) / "config.json"
  text = config.to_json(indent=2)
  if path.exists() and begun(workdir):
    try:
      old = flatten(json.loads(path.read_text()))
    except json.JSONDecodeError as error:
      raise InputError(
        f"{path} is not JSON ({error}): it was changed by hand; give another --workdir"
      ) from error
    changed = differences(old, flatten(json.loads(text)))
    if changed:
      raise InputError(
        f"{workdir} holds a run of another config:\n"
        + "\n".join(changed)
        + "\nGive another --workdir, or repeat that run with "
        f"--config=rerun:{path}"
      )
    return
  write_whole(path, text + "\n")


class MetricsLog:
  """`metrics.jsonl` and TensorBoard: one row per seed and logged step.

  Rows after a restored step are dropped, so that a resumed run leaves the same log as one that was
  never interrupted. The file is written whole each time, because object stores cannot append.
  """

  def __init__(self, workdir: epath.PathLike, *, tensorboard: bool):
    self.path = epath.Path(workdir) / "metrics.jsonl"
    self.folder = epath.Path(workdir) / "tensorboard"
    self.tensorboard = tensorboard and processes.first()
    self.rows: list[dict] = self._read() if processes.first() else []  # only the first writes
    self.writers: dict[int, Any] = {}

  def _read(self) -> list[dict]:
    if not self.path.exists():
      return []
    rows = []
    for number, line in enumerate(self.path.read_text().splitlines(), 1):
      try:
        rows.append(json.loads(line))
      except json.JSONDecodeError as error:
        raise InputError(
          f"{self.path}:{number}: not JSON ({error}); was it changed by hand? Delete the line"
        ) from error
    return rows

  def roll_back(self, seeds: Sequence[int], step: int) -> None:
    """Drops the rows of these seeds after `step`."""
    self.rows = [r for r in self.rows if r["seed"] not in seeds or r["step"] <= step]
    self.flush()
    if self.tensorboard:
      from tensorboardX import SummaryWriter

      for seed in seeds:
        self.writers[seed] = SummaryWriter(str(self.folder / f"seed-{seed}"), purge_step=step + 1)

  def write(self, seed: int, step: int, values: dict[str, float]) -> None:
    """Adds a row; `flush` writes it to disk."""
    self.rows.append({"seed": seed, "step": step, **values})
    if seed in self.writers:
      for name, value in values.items():
        self.writers[seed].add_scalar(name, value, step)

  def flush(self) -> None:
    """Writes all rows to disk."""
    write_whole(self.path, "".join(json.dumps(row) + "\n" for row in self.rows))
    for writer in self.writers.values():
      writer.flush()

  def close(self) -> None:
    """Writes all rows to disk and closes TensorBoard's files."""
    self.flush()
    for writer in self.writers.values():
      writer.close()
