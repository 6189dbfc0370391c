"""The table of tokenised units, in memory or memory-mapped from a cache folder."""

import collections
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int8, Int32, Int64

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


# The slices of one unit.
Unit = collections.namedtuple("Unit", [*_ARRAYS["tokens"], *_ARRAYS["words"]])


def _arrays(tokens: int, units: int, words: int) -> Iterator[tuple[str, int, type]]:
  """Return name, length and type of each array."""
  lengths = {"offsets": units + 1, "tokens": tokens, "words": words}
  for kind, names in _ARRAYS.items():
    for name, dtype in names.items():
      yield name, lengths[kind], dtype


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
    shapes = _arrays(int(offsets[-1]), len(lengths), 0)
    arrays = {name: np.zeros(length, dtype) for name, length, dtype in shapes}
    arrays |= {"offsets": offsets} if ids is None else {"offsets": offsets, "ids": ids}
    return cls(**arrays, forms=(), truncated_units=0, lost_by_role=(0, 0, 0, 0), blank_units=0)

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
    parts = [getattr(self, name)[tokens] for name in _ARRAYS["tokens"]]
    return Unit(*parts, *(getattr(self, name)[words] for name in _ARRAYS["words"]))

  def report(self) -> str:
    """Return one line for the log: units, tokens, mean length, what truncation cost."""
    return (
      f"{len(self):,} units, {len(self.ids):,} tokens, {self.truncated_units:,} units truncated, "
      f"{self.tokens_lost:,} tokens lost, {self.blank_units:,} units with a text that gives no token"
    )


def create_arrays(writer: cache.Writer, tokens: int, units: int, words: int) -> None:
  """Begin the arrays of a table, each of its length."""
  for name, length, dtype in _arrays(tokens, units, words):
    writer.create(name, (length,), dtype)


def table_of(entry: cache.Entry | None) -> UnitTable | None:
  """Return the table that an entry of the cache holds."""
  if entry is None:
    return None
  fields = dict(entry.fields)
  fields["forms"], fields["lost_by_role"] = tuple(fields["forms"]), tuple(fields["lost_by_role"])
  return UnitTable(**entry.arrays, **fields, folder=str(entry.folder or ""))
