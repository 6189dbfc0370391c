"""The table of tokenised units, in memory or memory-mapped from a cache folder."""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import shutil
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int8, Int32, Int64

from as2jax.data.text.input_templates import ROLES
from as2jax.runtime.errors import InputError

VERSION = 1  # of the arrays and their meaning; part of every cache key
_DTYPES = {
  "ids": np.int32,
  "type": np.int8,
  "role": np.int8,
  "offsets": np.int64,
  "word_start": np.int32,
  "word_length": np.int32,
  "word_role": np.int8,
  "word_form": np.int32,
  "word_offsets": np.int64,
}
_FRESH = 60  # seconds in which a new folder may not be locked yet


class Unit(NamedTuple):
  """The slices of one unit; see `UnitTable`."""

  ids: Int32[np.ndarray, "t"]
  type: Int8[np.ndarray, "t"]
  role: Int8[np.ndarray, "t"]
  word_start: Int32[np.ndarray, "w"]
  word_length: Int32[np.ndarray, "w"]
  word_role: Int8[np.ndarray, "w"]
  word_form: Int32[np.ndarray, "w"]


@dataclasses.dataclass(frozen=True, eq=False)
class UnitTable:
  """Tokenised units (sentences or joined sequences), one after the other.

  Attributes:
    ids, type, role: of each token: vocabulary id, token type, part (`ROLES`; special tokens carry
      the role of the part that they close, or open where they close none).
    offsets: tokens of unit u are `offsets[u]:offsets[u + 1]`.
    word_start, word_length: span of each word, in tokens from its unit's first.
    word_role, word_form: its part, and the number of its lower-cased form in `forms`.
    word_offsets: words of unit u are `word_offsets[u]:word_offsets[u + 1]`; all 0 without words.
    forms: the distinct lower-cased words, in order of first appearance.
    truncated_units: units that lost tokens to `max_length`.
    lost_by_role: tokens lost, one count a role.
    blank_units: units with a question or candidate that holds text but gives no token.

  """

  ids: Int32[np.ndarray, "t"]
  type: Int8[np.ndarray, "t"]
  role: Int8[np.ndarray, "t"]
  offsets: Int64[np.ndarray, "offsets"]
  word_start: Int32[np.ndarray, "w"]
  word_length: Int32[np.ndarray, "w"]
  word_role: Int8[np.ndarray, "w"]
  word_form: Int32[np.ndarray, "w"]
  word_offsets: Int64[np.ndarray, "offsets"]
  forms: tuple[str, ...]
  truncated_units: int
  lost_by_role: tuple[int, int, int, int]
  blank_units: int

  def __len__(self) -> int:
    return len(self.offsets) - 1

  @property
  def lengths(self) -> Int64[np.ndarray, "u"]:
    """Tokens of each unit, special tokens included."""
    return np.diff(self.offsets)

  @property
  def tokens_lost(self) -> int:
    """Tokens lost to `max_length`, over all units."""
    return sum(self.lost_by_role)

  def unit(self, index: int) -> Unit:
    """The slices of unit `index`."""
    if not 0 <= index < len(self):
      raise IndexError(f"unit {index} of {len(self)}")
    tokens = slice(*self.offsets[index : index + 2])
    words = slice(*self.word_offsets[index : index + 2])
    return Unit(
      self.ids[tokens],
      self.type[tokens],
      self.role[tokens],
      self.word_start[words],
      self.word_length[words],
      self.word_role[words],
      self.word_form[words],
    )

  def report(self) -> str:
    """One line for the log: units, tokens, mean length, what truncation cost."""
    lengths = self.lengths
    line = (
      f"{len(self):,} units, {len(self.ids):,} tokens "
      f"(mean {lengths.mean():.1f}, longest {lengths.max():,})"
      if len(self)
      else "0 units"
    )
    line += f", {self.truncated_units:,} truncated, {self.tokens_lost:,} tokens lost"
    if self.tokens_lost:
      lost = [(role, self.lost_by_role[i]) for role, i in ROLES.items()]
      line += f" ({', '.join(f'{role} {n:,}' for role, n in lost if n)})"
    if self.blank_units:
      line += f", {self.blank_units:,} with a text that gives no token"
    return line


class TableWriter:
  """Takes the arrays of a table piece by piece, into memory or into a folder.

  Args:
    totals: length of each array, by field name of `UnitTable`.
    folder: where the .npy files go; None keeps them in memory.

  """

  def __init__(self, totals: dict[str, int], folder: pathlib.Path | None = None):
    self._totals = totals
    self._folder = folder
    self._written = dict.fromkeys(totals, 0)
    self._arrays, self._files = {}, {}
    if folder is None:
      self._arrays = {name: np.empty(n, _DTYPES[name]) for name, n in totals.items()}
      return
    for name, n in totals.items():  # files, not maps: a full disk must be an error, not a SIGBUS
      self._files[name] = file = (folder / f"{name}.npy").open("wb")
      header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(_DTYPES[name])),
        "fortran_order": False,
        "shape": (n,),
      }
      np.lib.format.write_array_header_1_0(file, header)

  def add(self, **pieces: np.ndarray) -> None:
    """Appends a piece to each array named."""
    for name, piece in pieces.items():
      piece = np.ascontiguousarray(piece, _DTYPES[name])
      start = self._written[name]
      self._written[name] += len(piece)
      if self._folder is None:
        self._arrays[name][start : start + len(piece)] = piece
      else:
        self._files[name].write(memoryview(piece).cast("B") if len(piece) else b"")

  def finish(self, **fields: Any) -> UnitTable | None:
    """The table in memory; in a folder, makes the files durable, with a manifest, and gives None.

    Args:
      **fields: the fields of `UnitTable` that are no arrays.

    """
    if self._written != self._totals:
      raise AssertionError(f"the table is not full: {self._written} of {self._totals}")
    if self._folder is None:
      return UnitTable(**self._arrays, **fields)
    for file in self._files.values():
      file.flush()
      os.fsync(file.fileno())
    sizes = {f"{name}.npy": (self._folder / f"{name}.npy").stat().st_size for name in self._totals}
    with (self._folder / "table.json").open("w", encoding="ascii") as file:
      json.dump({"bytes": sizes, **fields}, file)
      file.flush()
      os.fsync(file.fileno())
    return None

  def __enter__(self) -> "TableWriter":
    return self

  def __exit__(self, *error: object) -> None:
    for file in self._files.values():
      with contextlib.suppress(OSError):  # the error that counts was raised before
        file.close()


def open_table(folder: pathlib.Path) -> UnitTable | None:
  """The table in `folder`, memory-mapped; None where there is none, or not all of it."""
  try:
    manifest = json.loads((folder / "table.json").read_text(encoding="ascii"))
    sizes = manifest.pop("bytes")
    if any((folder / name).stat().st_size != size for name, size in sizes.items()):
      return None
    arrays = {name: _map(folder / f"{name}.npy") for name in _DTYPES}
    manifest["forms"] = tuple(manifest["forms"])
    manifest["lost_by_role"] = tuple(manifest["lost_by_role"])
    return UnitTable(**arrays, **manifest)
  except (OSError, ValueError, KeyError, TypeError):  # what cannot be read is made again
    return None


def _map(path: pathlib.Path) -> np.ndarray:
  with path.open("rb") as file:
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if not shape[0]:  # nothing to map
      return np.empty(shape, dtype)
  # A plain view: numpy's memmap subclass makes each slice several times dearer.
  return np.load(path, mmap_mode="r").view(np.ndarray)


@contextlib.contextmanager
def new_folder(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """A temporary folder that becomes `folder` when the block ends, and vanishes when it fails.

  Where another process has put a whole table there first, that one stays.

  Raises:
    InputError: the folder cannot be written, or the disk is full.

  """
  with contextlib.ExitStack() as stack:
    try:
      folder.parent.mkdir(parents=True, exist_ok=True)
      _sweep(folder)
      temporary = stack.enter_context(_unfinished(folder))
      yield temporary
      _replace(temporary, folder)
    except OSError as error:
      raise InputError(
        f"{folder}: the cache cannot be written ({error}); free or allow space "
        "there, or give another cache folder"
      ) from error


def _replace(temporary: pathlib.Path, folder: pathlib.Path) -> None:
  """Renames `temporary` to `folder`, over a broken one, not over a whole one."""
  try:
    os.replace(temporary, folder)
    return
  except OSError:  # not empty: whole since another process made it, or broken
    if open_table(folder) is not None:
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
  """Removes what killed processes left of this table: the folders that nobody locks."""
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
