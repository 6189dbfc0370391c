"""Files that a reader finds whole or not at all."""

import os

from etils import epath

from as2jax.runtime import processes


def write_whole(path: epath.PathLike, text: str) -> None:
  """Writes a text file so that a reader finds the old content or the new, never a part.

  Of several processes the first one writes.
  """
  if not processes.first():
    return
  path = epath.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  if "://" in str(path):
    path.write_text(text)  # an object store shows an object only when it is whole
    return
  scratch = path.parent / f".{path.name}.{os.getpid()}"
  scratch.write_text(text)
  os.replace(scratch, path)
