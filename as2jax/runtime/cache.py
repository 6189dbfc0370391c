"""One cache for tokens, splits, vectors and compiled shapes: folders, each whole or not at all.

A folder holds arrays as `<name>.npy`, perhaps other files, and a manifest, written last, with the files'
sizes and checksums and further fields. `cached(place(cache, kind, key), build)` reads it, or builds it once.
"""

import concurrent.futures
import contextlib
import hashlib
import json
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from as2jax.runtime.errors import InputError
from as2jax.runtime.files import (
  CACHE,
  THREADS,
  checksum_of,
  make_durable,
  refuse_others,
  seal,
  unseal,
  warn_once,
  warn_unwritable,
)

MANIFEST = "manifest.json"


class Entry(NamedTuple):
  """Holds what a folder of the cache holds."""

  arrays: dict[str, np.ndarray]  # memory-mapped where `folder` is given
  fields: dict[str, Any]  # JSON data of the manifest
  folder: pathlib.Path | None = None


class Writer:
  """Takes arrays of known shapes piece by piece, into memory or into the files of a folder.

  Files, not memory maps: a full disk must be an error, not a SIGBUS. In `folder` other files may be
  written, too.
  """

  def __init__(self, folder: pathlib.Path | None = None):
    self.folder, self._files, self._begin = folder, {}, {}
    self._arrays: dict[str, np.ndarray] = {}  # in a folder, empty ones with their types
    self._rows: dict[str, int] = {}
    self.written: dict[str, int] = {}  # rows of each array

  def create(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
    """Begins an array and takes its room on the disk; OSError where there is none."""
    self._rows[name], self.written[name] = shape[0], 0
    if self.folder is None:
      self._arrays[name] = np.empty(shape, dtype)
      return
    row = self._arrays[name] = np.empty((0, *shape[1:]), dtype)
    self._files[name] = file = (self.folder / f"{name}.npy").open("wb")
    header = np.lib.format.header_data_from_array_1_0(row) | {"shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, header)
    self._begin[name] = file.tell()
    file.flush()
    size = math.prod(shape) * row.itemsize
    if size and hasattr(os, "posix_fallocate"):  # macOS lacks it: there the writes fail
      os.posix_fallocate(file.fileno(), self._begin[name], size)

  def write(self, name: str, rows: np.ndarray, start: int | None = None) -> None:
    """Writes rows of an array from row `start` on, or after those written last; each row once."""
    array = self._arrays[name]
    start = self.written[name] if start is None else start
    self.written[name] += len(rows)
    if self.folder is None:
      array[start : start + len(rows)] = rows
      return
    self._files[name].seek(self._begin[name] + start * math.prod(array.shape[1:]) * array.itemsize)
    self._files[name].write(np.ascontiguousarray(rows, array.dtype).reshape(-1).view(np.uint8).data)

  def finish(self, fields: Mapping[str, Any]) -> Entry | None:
    """Returns what was written in memory; in a folder, writes the manifest and returns None."""
    if self.written != self._rows:
      raise AssertionError(f"not every row was written: {self.written} of {self._rows}")
    if self.folder is None:
      return Entry(self._arrays, dict(fields))
    for file in self._files.values():
      file.flush()
    sizes, sums = {}, {}
    for path in sorted(self.folder.rglob("*")):
      make_durable(path)
      if path.is_file():
        name = path.relative_to(self.folder).as_posix()
        sizes[name], sums[name] = path.stat().st_size, checksum_of(path)
    with (self.folder / MANIFEST).open("w", encoding="ascii") as file:
      file.write(seal({"bytes": sizes, "checksums": sums, "fields": dict(fields)}))
      file.flush()
      os.fsync(file.fileno())
    return None

  def close(self) -> None:
    """Closes the files."""
    for file in self._files.values():
      with contextlib.suppress(OSError):  # the error that counts was raised before
        file.close()


Build = Callable[[Writer], Mapping[str, Any]]


def place(cache: str | os.PathLike, kind: str, key: Any) -> pathlib.Path:
  """Returns the folder `<cache>/<kind>/<hash of key>`; InputError where the cache is not local.

  `key` is JSON data, all that the content depends on.
  """
  if "://" in os.fspath(cache):
    raise InputError(f"cache {str(cache)!r} is not a local folder; give one, or off, in {CACHE}")
  name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
  return pathlib.Path(cache).expanduser() / kind / name


def cached(folder: pathlib.Path, build: Build) -> Entry:
  """Reads a folder of the cache, or builds it, in memory where it cannot be written.

  `build` writes the arrays and returns the manifest's fields; a second process waits for the first.
  """
  if entry := read(folder):
    return entry
  try:
    return locked(folder, build)
  except OSError as error:
    warn_unwritable(folder.parents[1], error)
  writer = Writer()
  entry = writer.finish(build(writer))
  assert entry is not None
  return entry


def locked(folder: pathlib.Path, build: Build) -> Entry:
  """Reads a folder, or builds it while other processes wait; OSError where it cannot be written."""
  from filelock import FileLock

  folder.parent.mkdir(parents=True, exist_ok=True)
  with FileLock(folder.with_name(f"{folder.name}.lock")):
    return read(folder) or write(folder, build)


def write(folder: pathlib.Path, build: Build) -> Entry:
  """Builds a folder whole or not at all (OSError), over one that is damaged; its lock is held."""
  scratch = folder.with_name(f"{folder.name}.unfinished")
  shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed
  scratch.mkdir(parents=True)
  writer = Writer(scratch)
  try:
    writer.finish(build(writer))
    make_durable(scratch)
    if folder.exists():
      shutil.rmtree(folder)
    os.replace(scratch, folder)
    make_durable(folder.parent)
  finally:
    writer.close()
    shutil.rmtree(scratch, ignore_errors=True)
  entry = read(folder)
  if entry is None:
    raise OSError(f"{folder} was written and cannot be read back: check the disk")
  return entry


def read(folder: pathlib.Path, what: str = "cache") -> Entry | None:
  """Returns the content of a folder, or None where it is not there or not what was written.

  Files are compared with their checksums, once a process. Damage of this `what` is logged once.
  """
  manifest = folder / MANIFEST
  try:
    written = manifest.stat().st_mtime_ns
  except OSError:  # nothing was finished here
    return None
  try:
    refuse_others(manifest)
    content = unseal(manifest.read_text(encoding="ascii"))
    paths = [folder / name for name in content["bytes"]]
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
      for name, checksum in zip(content["bytes"], pool.map(checksum_of, paths)):
        if checksum != content["checksums"][name]:
          raise ValueError(f"{name} is not what was written")
    arrays = {path.stem: _mapped(path) for path in paths if path.suffix == ".npy"}
    return Entry(arrays, content["fields"], folder)
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # it is built again
    again = "; it is made anew" if what == "cache" else ""
    warn_once(f"{folder}: the {what} is damaged ({error}){again}", written)
    return None


def _mapped(path: pathlib.Path) -> np.ndarray:
  """Returns the array of a .npy file, memory-mapped."""
  try:
    # A plain view: numpy's memmap subclass makes each slice several times dearer.
    return np.load(path, mmap_mode="r").view(np.ndarray)
  except ValueError:  # nothing to map
    return np.load(path)
