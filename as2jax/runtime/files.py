"""Atomic writing of text files: a reader sees a complete file or none."""

import os

from etils import epath

from as2jax.runtime import checksums, processes


def write_whole(path: epath.PathLike, text: str) -> None:
  """Writes a text file atomically: a reader sees the old or the new content, never a part.

  So does who reads after a power failure: content and name are on the disk when this returns.
  With several processes, only the first one writes.
  """
  if not processes.first():
    return
  path = epath.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  if "://" in str(path):
    path.write_text(text)  # an object becomes visible only when it is complete
    return
  scratch = path.parent / f".{path.name}.{os.getpid()}"
  try:
    scratch.write_text(text)
    checksums.make_durable(scratch)
    os.replace(scratch, path)
    checksums.make_durable(path.parent)
  except OSError as error:  # of a full disk, it would not say of which file
    scratch.unlink(missing_ok=True)
    error.filename = str(path)
    raise
