"""The manifest of a saved step: the checksum of every file that a restore may read.

Checksums are of files, so they hold on any number of devices and hosts. The manifest is written
last, when the step is whole on disk: a step without one was cut off.
"""

import concurrent.futures
from typing import Any

from etils import epath

from as2jax.runtime import checksums, processes, regular_files
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

NAME = "manifest.json"  # in the folder of the step


def write(step: epath.PathLike, **fields: Any) -> None:
  """Writes the manifest of a step that is whole on disk, with `fields` (JSON data) in it.

  The files are read back for it, once: a manifest that is there keeps its checksums. With several
  processes, only the first one does this.
  """
  if not processes.first():
    return
  step = epath.Path(step)
  if (step / NAME).exists():
    write_whole(step / NAME, checksums.sealed({**read(step), **fields}))
    return
  names = sorted(str(path.relative_to(step)) for path in _walk(step))
  with concurrent.futures.ThreadPoolExecutor(checksums.THREADS) as pool:
    sums = dict(zip(names, pool.map(lambda name: checksums.compute(step / name), names)))
  sizes = {name: (step / name).stat().length for name in names}
  write_whole(step / NAME, checksums.sealed({"bytes": sizes, "checksums": sums, **fields}))


def read(step: epath.PathLike) -> dict[str, Any]:
  """The content of a step's manifest.

  Raises:
    InputError: there is none, or it is damaged.

  """
  path = epath.Path(step) / NAME
  if not path.exists():
    raise InputError(f"{step} has no {NAME}: the save was cut off, or the file was deleted")
  regular_files.refuse_others(path)
  try:
    return checksums.unsealed(path.read_bytes().decode("ascii"))
  except (OSError, ValueError) as error:
    raise InputError(f"{path} was damaged: {error}") from None


def check(step: epath.PathLike, *, together: bool) -> dict[str, Any]:
  """Compares the files of a step with its manifest, and returns the manifest's content.

  Args:
    together: whether all processes call it, and share the work and the answer.

  Raises:
    InputError: a file is missing or has other content; or the manifest, see `read`.

  """
  fields = processes.by_first(lambda: read(step)) if together else read(step)
  names = sorted(fields["checksums"])
  mine = names[processes.index() :: processes.count()] if together else names
  with concurrent.futures.ThreadPoolExecutor(checksums.THREADS) as pool:
    damaged = [text for text in pool.map(lambda name: _damage(step, name, fields), mine) if text]
  if together:
    damaged = [text for texts in processes.gather(lambda: damaged) for text in texts]
  if damaged:
    more = f" (and {len(damaged) - 1} more files)" if len(damaged) > 1 else ""
    raise InputError(f"{damaged[0]}{more}")
  return fields


def _damage(step: epath.PathLike, name: str, fields: dict[str, Any]) -> str:
  """What is wrong with one file; "" where nothing is."""
  path = epath.Path(step) / name
  try:
    size, wanted = path.stat().length, fields["bytes"][name]
    if size != wanted:
      return f"{path} was damaged: it has {size} bytes, {wanted} were saved"
    if checksums.of_file(path) != fields["checksums"][name]:
      return f"{path} was damaged: its content is not what was saved"
  except OSError as error:
    return f"{path} was damaged: it cannot be read ({error})"
  return ""


def _walk(folder: epath.Path) -> list[epath.Path]:
  return [
    path for entry in folder.iterdir() for path in (_walk(entry) if entry.is_dir() else [entry])
  ]
