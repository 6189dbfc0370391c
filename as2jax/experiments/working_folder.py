"""The folder of a command that goes on after a stop: what is under way lies in its part `working`."""

import contextlib
from collections.abc import Generator

from etils import epath

from as2jax.runtime.errors import InputError
from as2jax.runtime.files import lock


@contextlib.contextmanager
def open_working(output: epath.PathLike) -> Generator[tuple[epath.Path, epath.Path], None, None]:
  """Open a folder and its part for unfinished work, which no other process can open meanwhile.

  A command puts its results beside that part, which is removed at the end: as long as it is there,
  what lies beside it is unfinished, too. After an error it stays, and the same command goes on.

  Raises:
    InputError: the folder holds anything, and no unfinished work, or is in use.

  """
  folder = epath.Path(output)
  working = folder / "working"
  if folder.exists() and not working.exists() and any(folder.iterdir()):
    raise InputError(f"--output={output} is not empty; name a new folder, or remove this one")
  with lock(working, f"--output={output}"):
    yield folder, working
    working.rmtree()
