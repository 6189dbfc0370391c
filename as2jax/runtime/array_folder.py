"""Folders of .npy arrays on a local disk: written whole or not at all, memory-mapped when read."""

import contextlib
import fcntl
import functools
import logging
import math
import os
import pathlib
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from as2jax.runtime import checked_array, checksums, regular_files
from as2jax.runtime.errors import InputError

MANIFEST = "manifest.json"  # written last
LARGE = 16 * 2**20  # bytes of a cache's file from which on it is verified block by block
_FRESH = 60  # seconds in which a new folder may not be locked yet

log = logging.getLogger(__name__)


class Writer:
  """Writes arrays of known shapes piece by piece, then the manifest that makes the folder whole.

  Files, not memory maps: a full disk must be an error, not a SIGBUS.

  Args:
    folder: exists; each array becomes `<name>.npy` in it.
    arrays: shape and dtype by name.

  """

  def __init__(self, folder: pathlib.Path, arrays: Mapping[str, tuple[tuple[int, ...], Any]]):
    self._folder, self._files, self._begin = folder, {}, {}
    self._arrays = {name: (shape, np.dtype(dtype)) for name, (shape, dtype) in arrays.items()}
    self.written = dict.fromkeys(arrays, 0)  # rows of each array
    for name, (shape, dtype) in self._arrays.items():
      self._files[name] = file = (folder / f"{name}.npy").open("wb")
      header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
      np.lib.format.write_array_header_1_0(file, {**header, "shape": shape})
      self._begin[name] = file.tell()

  def write(self, name: str, rows: np.ndarray, start: int | None = None) -> None:
    """Writes rows of an array from row `start` on, or after those written last; each row once."""
    shape, dtype = self._arrays[name]
    rows = np.ascontiguousarray(rows, dtype)
    if start is not None:
      self._files[name].seek(self._begin[name] + start * math.prod(shape[1:]) * dtype.itemsize)
    self._files[name].write(memoryview(rows).cast("B") if rows.size else b"")
    self.written[name] += len(rows)

  def finish(self, **fields: Any) -> None:
    """Makes the files durable and writes the manifest, with `fields` (JSON data) in it.

    The files are read back for their checksums: rows come in any order.
    """
    lacking = {n: k for n, k in self.written.items() if k != self._arrays[n][0][0]}
    if lacking:
      raise AssertionError(f"not every row was written: {lacking} of {self._arrays}")
    for file in self._files.values():
      file.flush()
      os.fsync(file.fileno())
    sizes = {f"{name}.npy": os.fstat(file.fileno()).st_size for name, file in self._files.items()}
    digests = {name: checksums.of_file(self._folder / name, by_block=True) for name in sizes}
    with (self._folder / MANIFEST).open("w", encoding="ascii") as file:
      file.write(checksums.sealed({"bytes": sizes, "checksums": digests, **fields}))
      file.flush()
      os.fsync(file.fileno())

  def __enter__(self) -> "Writer":
    return self

  def __exit__(self, *error: object) -> None:
    for file in self._files.values():
      with contextlib.suppress(OSError):  # the error that counts was raised before
        file.close()


def open_arrays(
  folder: pathlib.Path,
  what: str = "cache",
  by_block: Collection[str] = (),
  *,
  large: int | None = None,
) -> tuple[dict[str, Any], dict[str, Any]] | None:
  """The arrays by name, memory-mapped, and the manifest's fields; None where not all is there.

  Checksums are verified, of each file once a process. What is damaged is said once, in the log,
  which calls it `what`.

  Args:
    by_block: names of arrays which, where their file has `large` bytes (None: `LARGE`), are verified
      as they are read (`checked_array.CheckedArray`).

  """
  manifest = folder / MANIFEST
  try:
    written = manifest.stat().st_mtime_ns
  except OSError:  # nothing was finished here
    return None
  try:
    regular_files.refuse_others(manifest)
    fields = checksums.unsealed(manifest.read_text(encoding="ascii"))
    sizes, sums = fields.pop("bytes"), fields.pop("checksums")
    arrays = {}
    for name, size in sizes.items():
      path, key = folder / name, name.removesuffix(".npy")
      if path.stat().st_size != size:
        raise ValueError(f"{name} is not what was written")
      if key in by_block and size >= (LARGE if large is None else large):
        arrays[key] = checked_array.opened(path, sums[name], manifest if what == "cache" else None)
      elif checksums.of_file(path, by_block=True) != sums[name]:
        raise ValueError(f"{name} is not what was written")
      else:
        arrays[key] = checked_array.mapped(path)[0]
    return arrays, fields
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # it is made again
    _say_damaged(folder, what, str(error), written)
    return None


@functools.lru_cache
def _say_damaged(folder: pathlib.Path, what: str, reason: str, written: int) -> None:
  """Logs the damage, once for what was written at that time, however often it is looked at."""
  del written
  again = "; it is made anew" if what == "cache" else ""
  log.warning("%s: the %s is damaged (%s)%s", folder, what, reason, again)


@contextlib.contextmanager
def new_folder(
  folder: pathlib.Path, read: Callable[[pathlib.Path], Any] = open_arrays, what: str = "cache"
) -> Iterator[pathlib.Path]:
  """A temporary folder that becomes `folder` when the block ends, and vanishes when it fails.

  Where another process has put one there first that `read` does not give None for, that one stays.

  Raises:
    InputError: the folder cannot be written, or the disk is full.

  """
  with contextlib.ExitStack() as stack:
    try:
      folder.parent.mkdir(parents=True, exist_ok=True)
      _sweep(folder)
      temporary = stack.enter_context(_unfinished(folder))
      yield temporary
      checksums.make_durable(temporary)
      _replace(temporary, folder, read)
      checksums.make_durable(folder.parent)
    except OSError as error:
      raise InputError(
        f"{folder}: the {what} cannot be written ({error}); free or allow space "
        f"there, or give another folder for the {what}"
      ) from error


def _replace(
  temporary: pathlib.Path, folder: pathlib.Path, read: Callable[[pathlib.Path], Any]
) -> None:
  """Renames `temporary` to `folder`, over a broken one, not over a whole one."""
  try:
    os.replace(temporary, folder)
    return
  except OSError:  # not empty: whole since another process made it, or broken
    if read(folder) is not None:
      return
    if not folder.exists():
      raise
  with _unfinished(folder) as aside:
    with contextlib.suppress(FileNotFoundError):
      os.replace(folder, aside / "broken")
    os.replace(temporary, folder)


@contextlib.contextmanager
def _unfinished(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """A new folder beside `folder`, locked as long as this process lives, removed after the block."""
  path = folder.with_name(f"{folder.name}.unfinished-{uuid.uuid4().hex}")
  path.mkdir()
  descriptor = os.open(path, os.O_RDONLY)
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield path
  finally:
    shutil.rmtree(path, ignore_errors=True)
    os.close(descriptor)


def _sweep(folder: pathlib.Path) -> None:
  """Removes what killed processes left of this folder: those that nobody locks."""
  for path in folder.parent.glob(f"{folder.name}.unfinished-*"):
    with contextlib.suppress(OSError):  # gone, or locked
      if time.time() - path.stat().st_mtime < _FRESH:
        continue
      descriptor = os.open(path, os.O_RDONLY)
      try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
      finally:
        os.close(descriptor)
