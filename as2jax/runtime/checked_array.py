"""Memory-mapped arrays whose blocks are compared with their checksums when they are first read.

A host of sixteen cuts the tokens of its own shards alone out of a cache of gigabytes: it should not
read the whole of it first.
"""

import math
import os
import pathlib
import zlib
from typing import Any

import numpy as np

from as2jax.runtime.checksums import BLOCK
from as2jax.runtime.errors import InputError

DIGITS = 8  # of a CRC-32


def mapped(path: pathlib.Path) -> tuple[np.ndarray, int]:
  """The array of a .npy file, memory-mapped, and the byte at which its content begins."""
  with path.open("rb") as file:
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    begin = file.tell()
    if not math.prod(shape):  # nothing to map
      return np.empty(shape, dtype), begin
    # A plain view: numpy's memmap subclass makes each slice several times dearer.
    return np.memmap(file, dtype, "r", begin, shape).view(np.ndarray), begin


def opened(path: pathlib.Path, sums: str, manifest: pathlib.Path | None) -> "CheckedArray":
  """The array of a .npy file of which the first block alone was read; see `CheckedArray`.

  Raises:
    ValueError: that block is damaged, or the checksums are those of another file.

  """
  blocks = -(-path.stat().st_size // BLOCK)
  if len(sums) != blocks * DIGITS or not _intact(path, sums, [0]):
    raise ValueError(f"{path.name} is not what was written")
  return CheckedArray(path, *mapped(path), sums, manifest)


def _intact(path: pathlib.Path, sums: str, blocks: list[int]) -> list[int]:
  """The first of the blocks, in their order, that are what was written."""
  with path.open("rb", buffering=0) as file:
    for i, block in enumerate(blocks):
      digest = f"{zlib.crc32(os.pread(file.fileno(), BLOCK, block * BLOCK)):08x}"
      if digest != sums[block * DIGITS : (block + 1) * DIGITS]:
        return blocks[:i]
  return blocks


class CheckedArray(np.lib.mixins.NDArrayOperatorsMixin):
  """An array read from a file, for numpy what any array is.

  Slices and integers along the first axis read their own blocks; whatever else is done with it reads
  all of them.

  Args:
    path: a .npy file.
    array: its content, memory-mapped.
    begin: the byte of the file at which the content begins.
    sums: `checksums.of_blocks` when it was written.
    manifest: of a cache; removed where a block is damaged, so that the next process finds no cache and
      makes it.

  """

  def __init__(
    self,
    path: pathlib.Path,
    array: np.ndarray,
    begin: int,
    sums: str,
    manifest: pathlib.Path | None,
  ):
    self._path, self._array, self._begin, self._sums = path, array, begin, sums
    self._manifest = manifest
    self._stride = math.prod(array.shape[1:]) * array.itemsize  # bytes of a row
    self._verified = np.zeros(len(sums) // DIGITS, bool)

  @property
  def shape(self) -> tuple[int, ...]:
    """As the array's own; reads nothing, and so do the two below."""
    return self._array.shape

  @property
  def dtype(self) -> np.dtype:
    """As the array's own."""
    return self._array.dtype

  def __len__(self) -> int:
    return len(self._array)

  def __getitem__(self, index: Any) -> np.ndarray:
    if isinstance(index, slice):
      start, stop, step = index.indices(len(self))
      self._check(slice(start, stop) if step > 0 else slice(stop + 1, start + 1))
    elif isinstance(index, int | np.integer) and not isinstance(index, bool):  # True is a new axis
      row = int(index) % max(len(self), 1)
      self._check(slice(row, row + 1))
    elif isinstance(index, np.ndarray) and index.dtype.kind == "i":
      self._check(np.where(index < 0, index + len(self), index))
    else:
      self._check(slice(0, len(self)))
    return self._array[index]

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    self._check(slice(0, len(self)))
    return np.array(self._array, dtype, copy=copy)

  def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    plain = [np.asarray(x) if isinstance(x, CheckedArray) else x for x in inputs]
    return getattr(ufunc, method)(*plain, **options)

  def __getattr__(self, name: str) -> Any:
    if name.startswith("_"):
      raise AttributeError(name)
    return getattr(np.asarray(self), name)

  def _check(self, rows: slice | np.ndarray) -> None:
    """Raises InputError where a block that holds some of the rows is not what was written."""
    if isinstance(rows, slice):
      first = (self._begin + rows.start * self._stride) // BLOCK
      end = -(-(self._begin + rows.stop * self._stride) // BLOCK) if rows.stop > rows.start else 0
      blocks = np.arange(first, min(end, len(self._verified)))
    else:
      rows = rows[(rows >= 0) & (rows < len(self))].ravel().astype(np.int64)  # numpy refuses others
      start = self._begin + rows * self._stride
      places = range(0, max(self._stride, 1) + BLOCK - 1, BLOCK)
      within = np.minimum(np.asarray(places), max(self._stride - 1, 0))
      blocks = (start[:, None] + within) // BLOCK
    if not len(blocks := np.unique(blocks[~self._verified[blocks]])):
      return
    intact = _intact(self._path, self._sums, blocks.tolist())
    self._verified[intact] = True
    if len(intact) < len(blocks):
      raise InputError(self._damage(int(blocks[len(intact)])))

  def _damage(self, block: int) -> str:
    where = f"{self._path}: bytes {block * BLOCK:,} to {(block + 1) * BLOCK - 1:,}"
    if self._manifest is None:
      return f"{where} are not what was written: check the disk, and make the index anew"
    self._manifest.unlink(missing_ok=True)
    return (
      f"{where} of this cache are not what was written (check the disk); it will not be used again: "
      "start the same command once more, which makes it anew"
    )
