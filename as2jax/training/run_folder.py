"""The folder of a run: its lock, its config, its logs; every file whole or not there."""

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
  """Holds the run's folder for this run; the system releases it however the process ends.

  Of several processes of one run the first holds it.

  Raises:
    InputError: another run holds it. Object stores cannot lock: there nothing is checked.

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
  """Whether a run left anything in its folder that another config would contradict."""
  workdir = epath.Path(workdir)
  saved = (
    path
    for pattern in ("latest/*", "best/*", "*/latest/*", "*/best/*")
    for path in (workdir / "checkpoints").glob(pattern)
  )
  return (workdir / "results.json").exists() or any(path.name.isdigit() for path in saved)


def claim(workdir: epath.PathLike, config: Any) -> None:
  """Writes the resolved config into a new run's folder, or checks that it is the same run's.

  A folder counts as new until its run has saved something: whoever corrects a mistake in a config
  may use it again.

  Raises:
    InputError: the folder holds a run of another config; the message lists what differs.

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
  """`metrics.jsonl` and TensorBoard: one row a point, by seed and step.

  Rows beyond a restored step are dropped, so that a continued run leaves the log of one that was
  never disturbed. The file is written whole each time: no store needs to append.
  """

  def __init__(self, workdir: epath.PathLike, *, tensorboard: bool):
    self.path = epath.Path(workdir) / "metrics.jsonl"
    self.folder = epath.Path(workdir) / "tensorboard"
    self.tensorboard = tensorboard and processes.first()
    self.rows: list[dict] = self._read() if processes.first() else []  # nobody else writes them
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
    """Adds a row; `flush` puts it on disk."""
    self.rows.append({"seed": seed, "step": step, **values})
    if seed in self.writers:
      for name, value in values.items():
        self.writers[seed].add_scalar(name, value, step)

  def flush(self) -> None:
    write_whole(self.path, "".join(json.dumps(row) + "\n" for row in self.rows))
    for writer in self.writers.values():
      writer.flush()

  def close(self) -> None:
    self.flush()
    for writer in self.writers.values():
      writer.close()
