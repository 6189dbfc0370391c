"""Frozen word vectors on disk: written once, whole or not at all, memory-mapped ever after.

`word_table` makes each word of a table a token of its own, `cached` keeps the words' vectors in a
folder that carries the hash of all that they depend on (`key`).
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import logging
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int32, Shaped

from as2jax.data.text.token_table import UnitTable
from as2jax.runtime import array_folder
from as2jax.runtime.errors import InputError

VERSION = 1  # of the vectors and their meaning; part of every key
STORAGE = ("float32", "float16")
MARGIN = 64 * 2**20  # bytes that a new file leaves free on its disk
SECONDS = 15.0  # between two lines of progress
_NAME = "features"  # of the array

log = logging.getLogger(__name__)


class WordTable(NamedTuple):
  """Words in place of tokens, and whence they come.

  Attributes:
    units: a table whose tokens are words.
    first, length: the tokens of each word in the table before, counted from its unit's first;
      length 0 where there are none.

  """

  units: UnitTable
  first: Int32[np.ndarray, "w"]
  length: Int32[np.ndarray, "w"]


def word_table(units: UnitTable, *, of_words: bool) -> WordTable:
  """The words of `units` as tokens.

  Their `ids` are the numbers of their forms. Special tokens, which no word owns, are left out; a
  unit without any word keeps one token that stands for none (its id is the number of forms).

  Args:
    units: tokens with word spans.
    of_words: whether the tokens are words as they are (ELMo, word vectors): they stay.

  """
  if of_words:
    within = np.arange(len(units.ids)) - np.repeat(units.offsets[:-1], units.lengths)
    return WordTable(units, within.astype(np.int32), np.ones(len(units.ids), np.int32))
  counts = np.diff(units.word_offsets)
  bare = counts == 0
  places = units.word_offsets[:-1][bare]
  put = lambda values, new: np.insert(np.asarray(values), places, new)
  offsets = np.concatenate([[0], np.cumsum(np.maximum(counts, 1))])
  table = dataclasses.replace(
    units,
    ids=put(units.word_form, len(units.forms)),
    offsets=offsets,
    type=np.zeros(offsets[-1], np.int8),
    role=put(units.word_role, _first_roles(units)[bare]),
    word_start=(
      np.arange(len(units.word_form)) - np.repeat(units.word_offsets[:-1], counts)
    ).astype(np.int32),
    word_length=np.ones(len(units.word_form), np.int32),
  )
  return WordTable(table, put(units.word_start, 0), put(units.word_length, 0))


def _first_roles(units: UnitTable) -> np.ndarray:
  return np.asarray(units.role)[units.offsets[:-1]] if len(units) else np.empty(0, np.int8)


def key(units: UnitTable, words: WordTable, inputs: Mapping[str, np.ndarray], settings: Any) -> str:
  """SHA-256 (hex) of what the vectors depend on: all that the encoder reads, and `settings`.

  Args:
    inputs: the columns that the encoder reads beside the ids, by name (ELMo's characters).
    settings: JSON data: the weights' hash, the encoder's fields, the type of the file.

  """
  digest = hashlib.sha256(json.dumps([VERSION, settings]).encode())
  arrays = (units.ids, units.type, units.offsets, words.units.offsets, words.first, words.length)
  for array in (*arrays, *(inputs[name] for name in sorted(inputs))):
    digest.update(f"{array.dtype.str}{array.shape}".encode())
    digest.update(memoryview(np.ascontiguousarray(array)).cast("B") if array.size else b"")
  return digest.hexdigest()


class FeatureWriter:
  """Takes the vectors of runs of words, in any order, into an array of a folder."""

  def __init__(self, writer: array_folder.Writer, shape: tuple[int, ...], dtype: str):
    self._writer, self._count, self._dtype = writer, shape[0], np.dtype(dtype)
    self._told = time.monotonic()

  def put(self, start: int, vectors: Shaped[np.ndarray, "n ..."]) -> None:
    """Writes the vectors of words `start`, `start + 1`, …; each word exactly once.

    Raises:
      InputError: a vector that is not finite, or too large for the type of the file.

    """
    with np.errstate(over="ignore"):  # named below
      stored = np.ascontiguousarray(vectors, self._dtype)
    if not np.isfinite(stored).all():
      if np.isfinite(vectors).all():
        raise InputError(
          f"a word's vector holds {np.abs(vectors).max():.4g}, too large for "
          "float16: set model.storage to 'float32'"
        )
      raise InputError(
        "the encoder gives a vector that is not finite: its weights are damaged, or "
        "encoder.dtype is too narrow for them"
      )
    self._writer.write(_NAME, stored, start)
    if time.monotonic() - self._told > SECONDS:
      self._told = time.monotonic()
      done = self._writer.written[_NAME]
      log.info("features: %d %% of %s words", 100 * done // self._count, f"{self._count:,}")


def cached(
  cache: str,
  name: str,
  shape: tuple[int, ...],
  dtype: str,
  fill: Callable[[FeatureWriter], None],
  about: Any,
) -> np.ndarray:
  """The vectors `[words, …]` of the folder `<cache>/features/<name>`, memory-mapped.

  Where they are not there, or not whole, `fill` computes them; a process that finds another at it
  waits, and reads what that one has written.

  Args:
    name: their `key`.
    about: JSON data for whoever looks into the folder.

  Raises:
    InputError: a cache that cannot be written or is no local folder, or a disk without room (found
      before anything is computed).

  """
  if "://" in str(cache):
    raise InputError(
      f"cache {cache!r} is not a local folder; give one in AS2JAX_CACHE or --config.data.cache"
    )
  folder = pathlib.Path(cache).expanduser() / "features" / name
  vectors = _open(folder, shape, dtype)
  if vectors is not None:
    return vectors
  with _alone(folder):
    vectors = _open(folder, shape, dtype)  # another process has just written them
    if vectors is None:
      for left in folder.parent.glob(f"{name}.unfinished-*"):
        shutil.rmtree(left, ignore_errors=True)  # of a process that was killed: the lock is ours
      _check_room(folder, shape, dtype)
      arrays = {_NAME: (tuple(shape), dtype)}
      with (
        array_folder.new_folder(folder, lambda f: _open(f, shape, dtype)) as unfinished,
        array_folder.Writer(unfinished, arrays) as writer,
      ):
        fill(FeatureWriter(writer, shape, dtype))
        writer.finish(about=about)
      vectors = _open(folder, shape, dtype)
  if vectors is None:
    raise InputError(f"{folder}: something else changed this cache just now; run again")
  return vectors


def _open(folder: pathlib.Path, shape: tuple[int, ...], dtype: str) -> np.ndarray | None:
  """The array in `folder`; None where there is none, or not all of it."""
  opened = array_folder.open_arrays(folder)
  array = opened and opened[0].get(_NAME)
  right = array is not None and array.shape == tuple(shape) and array.dtype == np.dtype(dtype)
  return array if right else None


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[None]:
  """Holds the lock of a folder of features, which ends with this process, however that ends."""
  try:
    folder.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
  except OSError as error:
    raise InputError(
      f"{folder}: the cache cannot be written ({error}); free or allow space there, "
      "or give another cache folder"
    ) from error
  try:
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      log.info("%s: another process computes these features; waiting for it", folder)
      fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
  finally:
    os.close(descriptor)


def _check_room(folder: pathlib.Path, shape: tuple[int, ...], dtype: str) -> None:
  """Raises InputError where the disk lacks room for an array."""
  need = int(np.prod(shape)) * np.dtype(dtype).itemsize
  free = shutil.disk_usage(folder.parent).free
  if free >= need + MARGIN:
    return
  narrower = ", or halve them with --config.model.storage=float16" if dtype == "float32" else ""
  raise InputError(
    f"{folder.parent}: no room for features: {shape[0]:,} words × {int(np.prod(shape[1:])):,} "
    f"numbers in {dtype} need {need / 2**20:,.0f} MiB (and {MARGIN / 2**20:.0f} to spare), "
    f"{free / 2**20:,.0f} MiB are free. Free some space, name another folder in AS2JAX_CACHE or "
    f"--config.data.cache{narrower}"
  )
