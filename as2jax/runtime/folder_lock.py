"""A lock on a folder, so that no two processes write into it."""

import contextlib
import os
from collections.abc import Generator

from etils import epath

from as2jax.runtime import processes
from as2jax.runtime.errors import InputError


@contextlib.contextmanager
def lock(
  workdir: epath.PathLike, option: str = "", *, signed: bool = True
) -> Generator[None, None, None]:
  """Locks a folder, which it makes; the system releases the lock however the process ends.

  With several processes, the first one holds the lock. Object stores cannot lock: nothing is
  checked there.

  Args:
    workdir: the folder.
    option: its name in messages: `--workdir=FOLDER` where nothing else is said.
    signed: whether this process writes its id into the lock's file; else the file stays as it is.

  Raises:
    InputError: another process holds the lock.

  """
  with contextlib.ExitStack() as held:
    processes.by_first(lambda: held.enter_context(_locked(epath.Path(workdir), option, signed)))
    yield


@contextlib.contextmanager
def _locked(workdir: epath.Path, option: str, signed: bool) -> Generator[None, None, None]:
  option = option or f"--workdir={workdir}"
  try:
    workdir.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise InputError(f"{option} cannot be made: {error}") from error
  if "://" in str(workdir):
    yield
    return
  import fcntl

  try:
    file = open(workdir / ".lock", "a+")
  except OSError as error:
    raise InputError(f"{option} cannot be written: {error}") from error
  with file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
      file.seek(0)
      raise InputError(
        f"{option} is in use by another process ({file.read().strip()}); "
        "wait for it, or give another folder"
      ) from error
    if signed:
      file.seek(0)
      file.truncate()
      file.write(f"pid {os.getpid()}")
      file.flush()
    yield
