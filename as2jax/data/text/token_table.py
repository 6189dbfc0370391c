"""The table of tokenised units, in memory or memory-mapped from a cache folder."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int8, Int32, Int64

from as2jax.data.text.input_templates import ROLES
from as2jax.data.text.words import cumulative
from as2jax.runtime import cache

VERSION = 1  # of the arrays and their meaning; part of every cache key
# The arrays of a table, by what their length is.
_ARRAYS = {
  "offsets": {"offsets": np.int64, "word_offsets": np.int64},
  "tokens": {"ids": np.int32, "type": np.int8, "role": np.int8},
  "words": {
    "word_start": np.int32,
    "word_length": np.int32,
    "word_role": np.int8,
    "word_form": np.int32,
  },
}


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
  """Holds tokenised units (sentences or joined sequences), one after the other.

  Attributes:
    ids, type, role: of each token: vocabulary id, token type, part (`ROLES`; special tokens carry
      the role of the part that they close, or open where they close none).
    offsets: tokens of unit u are `offsets[u]:offsets[u + 1]`.
    word_start, word_length: span of each word, in tokens from its unit's first.
    word_role, word_form: its part, and the number of its lower-cased form in `forms`.
    word_offsets: words of unit u are `word_offsets[u]:word_offsets[u + 1]`; all 0 without words.
    forms: the distinct lower-cased words, in order of first appearance.
    truncated_units, lost_by_role: units that lost tokens to `max_length`; tokens lost, by role.
    blank_units: units with a question or candidate that holds text but gives no token.
    folder: of the cache that it is mapped from, "" in memory.

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
  folder: str = dataclasses.field(default="", compare=False)

  @classmethod
  def of_lengths(
    cls, lengths: Sequence[int], ids: Int32[np.ndarray, "t"] | None = None
  ) -> "UnitTable":
    """Make units of so many tokens, all of one role and without words; ids are 0 where not given."""
    offsets = cumulative(np.asarray(lengths, np.int64))
    small, none = np.zeros(offsets[-1], np.int8), np.zeros(0, np.int32)
    return cls(
      ids=np.zeros(offsets[-1], np.int32) if ids is None else ids,
      type=small,
      role=small,
      offsets=offsets,
      word_start=none,
      word_length=none,
      word_role=small[:0],
      word_form=none,
      word_offsets=np.zeros_like(offsets),
      forms=(),
      truncated_units=0,
      lost_by_role=(0, 0, 0, 0),
      blank_units=0,
    )

  def __len__(self) -> int:
    return len(self.offsets) - 1

  @property
  def lengths(self) -> Int64[np.ndarray, "u"]:
    """Return the tokens of each unit, special tokens included."""
    return np.diff(self.offsets)

  @property
  def tokens_lost(self) -> int:
    """Return the tokens lost to `max_length`, over all units."""
    return sum(self.lost_by_role)

  def unit(self, index: int) -> Unit:
    """Return the slices of unit `index`."""
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
    """Return one line for the log: units, tokens, mean length, what truncation cost."""
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


def create_arrays(writer: cache.Writer, tokens: int, units: int, words: int) -> None:
  """Begin the arrays of a table, each of its length."""
  lengths = {"offsets": units + 1, "tokens": tokens, "words": words}
  for kind, arrays in _ARRAYS.items():
    for name, dtype in arrays.items():
      writer.create(name, (lengths[kind],), dtype)


def table_of(entry: cache.Entry | None) -> UnitTable | None:
  """Return the table that an entry of the cache holds."""
  if entry is None:
    return None
  fields = dict(entry.fields)
  fields["forms"], fields["lost_by_role"] = tuple(fields["forms"]), tuple(fields["lost_by_role"])
  return UnitTable(**entry.arrays, **fields, folder=str(entry.folder or ""))
