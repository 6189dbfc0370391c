"""The folder of a command that goes on after a stop: what is under way lies in its part `working`."""

from etils import epath

from as2jax.runtime.errors import InputError


def open_working(output: epath.PathLike) -> tuple[epath.Path, epath.Path]:
  """The folder and its part for unfinished work, neither of which is made.

  A command puts its results beside that part and removes it last: as long as it is there, what lies
  beside it is unfinished, too.

  Raises:
    InputError: the folder holds anything, and no unfinished work.

  """
  folder = epath.Path(output)
  working = folder / "working"
  if folder.exists() and not working.exists() and any(folder.iterdir()):
    raise InputError(f"--output={output} is not empty; name a new folder, or remove this one")
  return folder, working
