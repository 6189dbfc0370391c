"""Frozen word vectors in the cache.

`word_table` makes each word of a table a token of its own, `cached` keeps the words' vectors under the
hash of all that they depend on (`key`).
"""

import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int32, Shaped

from as2jax.data.text.token_table import UnitTable
from as2jax.runtime import cache
from as2jax.runtime.errors import InputError

VERSION = 1  # of the vectors and their meaning; part of every key
STORAGE = ("float32", "float16")
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


def cached(
  folder: str,
  name: str,
  shape: tuple[int, ...],
  dtype: str,
  fill: Callable[["FeatureWriter"], None],
  about: Any,
) -> np.ndarray:
  """Returns the vectors `[words, …]` of the cache, memory-mapped; `fill` computes them once.

  Args:
    folder: of the cache.
    name: their `key`.
    about: JSON data for whoever looks into the folder.

  """

  def build(writer: cache.Writer) -> dict[str, Any]:
    writer.create(_NAME, shape, dtype)
    fill(FeatureWriter(writer, shape[0], dtype))
    return {"about": about}

  return cache.cached(cache.place(folder, "features", name), build).arrays[_NAME]


class FeatureWriter:
  """Takes the vectors of runs of words, in any order, into an array of the cache."""

  def __init__(self, writer: cache.Writer, count: int, dtype: str):
    self._writer, self._count, self._dtype = writer, count, np.dtype(dtype)
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
