"""Tokenises texts once and assembles units from them: the table of a data set, cached."""

import array
import collections
import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int8, Int32, Int64

from as2jax.data.text.input_templates import (
  CONTEXT,
  ROLES,
  TEMPLATES,
  assemble,
  count_words,
  truncate,
)
from as2jax.data.text.tokenizer import Tokenizer
from as2jax.data.text.words import RULES, WORD, TextTable, cumulative, tokenize
from as2jax.runtime import cache as caches
from as2jax.runtime.errors import InputError

VERSION = 1  # of the arrays and their meaning; part of every cache key
# The arrays of tokens and of words, in the order of `Unit`.
_DTYPES = {
  "ids": np.int32,
  "type": np.int8,
  "role": np.int8,
  "word_start": np.int32,
  "word_length": np.int32,
  "word_role": np.int8,
  "word_form": np.int32,
}
Unit = collections.namedtuple("Unit", _DTYPES)  # the slices of one unit


@dataclasses.dataclass(frozen=True, eq=False)
class UnitTable(TextTable):
  """Holds tokenised units (sentences or joined sequences), one after the other.

  To tokens and words of a `TextTable`, here of units, it adds a token's type and part (`ROLES`;
  special tokens carry the role of the part that they close, or open where they close none), and a
  word's part. `truncated_units` lost tokens to `max_length`, `lost_by_role` tokens; `blank_units`
  have a question or candidate that holds text but gives no token. `folder` is that of the cache, ""
  in memory.
  """

  type: Int8[np.ndarray, "t"]
  role: Int8[np.ndarray, "t"]
  word_role: Int8[np.ndarray, "w"]
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
    arrays: dict[str, Any] = {"offsets": offsets, "word_offsets": 0 * offsets}
    for name, dtype in _DTYPES.items():
      arrays[name] = np.zeros(0 if name.startswith("word_") else offsets[-1], dtype)
    if ids is not None:
      arrays["ids"] = ids
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
    tokens = slice(*self.offsets[index : index + 2])
    words = slice(*self.word_offsets[index : index + 2])
    arrays = ((name, getattr(self, name)) for name in _DTYPES)
    return Unit(*(array[words if name.startswith("word_") else tokens] for name, array in arrays))

  def report(self) -> str:
    """Return a line for the log on what the model does not see; "" where it sees every text whole."""
    lost = []
    if self.truncated_units:
      cut = f"{self.truncated_units:,} are cut to the maximum length"
      lost.append(f"{cut} and lose {self.tokens_lost:,} tokens")
    if self.blank_units:
      lost.append(f"{self.blank_units:,} have a text that gives no token")
    return f"of {len(self):,} inputs {', '.join(lost)}" if lost else ""


def table_of(entry: caches.Entry | None) -> UnitTable | None:
  """Return the table that an entry of the cache holds."""
  if entry is None:
    return None
  fields = dict(entry.fields)
  fields["forms"], fields["lost_by_role"] = tuple(fields["forms"]), tuple(fields["lost_by_role"])
  return UnitTable(**entry.arrays, **fields, folder=str(entry.folder or ""))


_CHUNK = 65536  # units hashed or assembled at once


def build_units(
  units: Sequence[tuple[str, ...]],
  tokenizer: Tokenizer,
  *,
  template: str,
  max_length: int,
  words: bool = False,
  roles: Sequence[int] | np.ndarray | None = None,
  cache: str = "",
) -> UnitTable:
  """Tokenise each distinct text once and assemble the units from them.

  What exceeds `max_length` (special tokens counted) is cut at the right: question and candidate
  longest first (transformers' `longest_first`), and only where nothing of the context is left. A
  context part that is empty still has its separator. `units` have their texts in the order of
  `TEMPLATES[template]`, those of `joint` 1 … K candidates; `words` finds words and their spans;
  `roles` are those of units of the template `single`, questions by default; `cache` is a local
  folder that keeps the table, from which it is memory-mapped next time. Raises InputError for an
  empty question or candidate, a `max_length` without room for them, an unknown template.
  """
  if template not in TEMPLATES:
    raise InputError(f"template {template!r} is unknown; known are {', '.join(TEMPLATES)}")
  parts = len(TEMPLATES[template])
  if template == "joint":
    parts = max([parts, *map(len, units)])
  roles = _roles(template, len(units), parts) if roles is None else np.asarray(roles, np.int8)
  roles = roles.reshape(len(units), parts)
  specials = sum(map(len, tokenizer.special.around(parts)))
  required = parts - len(CONTEXT.get(template, ()))
  if max_length < specials + required:
    raise InputError(
      f"max_length {max_length} is too short for the template {template!r}, which "
      f"has {specials} special tokens; give at least {specials + required}"
    )
  build = functools.partial(_build, units, tokenizer, template, max_length, words, roles)
  if cache:
    key = _key(units, tokenizer, roles, [template, max_length, words and RULES])
    entry = caches.cached(caches.place(cache, "units", key), build)
  else:
    writer = caches.Writer()
    entry = writer.finish(build(writer))
  return table_of(entry)


def _roles(template: str, units: int, parts: int) -> np.ndarray:
  """Return the roles of all parts; the candidates of `joint` are numbered from 1."""
  if template != "joint":
    row = [ROLES[part] for part in TEMPLATES[template]]
  elif parts <= np.iinfo(np.int8).max:
    row = range(parts)
  else:
    raise InputError(f"{parts - 1} candidates in one unit are too many; give at most 126")
  return np.broadcast_to(np.asarray(row, np.int8), (units, parts))


def _key(
  units: Sequence[tuple[str, ...]], tokenizer: Tokenizer, roles: np.ndarray, settings: list
) -> str:
  """Return the SHA-256 (hex) of all that the table depends on."""
  import tokenizers

  head = [VERSION, tokenizers.__version__, tokenizer.fingerprint, WORD, *settings]
  digest = hashlib.sha256(json.dumps(head).encode())
  for start in range(0, len(units), _CHUNK):
    digest.update(b"\n" + json.dumps(units[start : start + _CHUNK]).encode())
  digest.update(roles.tobytes())
  return digest.hexdigest()


def _build(
  units: Sequence[tuple[str, ...]],
  tokenizer: Tokenizer,
  template: str,
  max_length: int,
  find_words: bool,
  roles: np.ndarray,
  writer: caches.Writer,
) -> dict[str, Any]:
  """Write the arrays of the table of `units`; return its other fields."""
  names, index, parts = _distinct_texts(units, template, roles.shape[1])
  texts = tokenize(names, tokenizer, find_words=find_words)
  lengths = np.diff(texts.offsets)[index]
  around, types = tokenizer.special.around(index.shape[1]), tokenizer.special.types
  between = len(around[1]) if len(around) > 2 else 0
  specials = sum(map(len, around)) - between * (index.shape[1] - parts)
  kept = truncate(lengths, template, max_length - specials)
  word_counts = count_words(texts, index, kept)
  offsets = cumulative(kept.sum(axis=1) + specials)
  word_offsets = cumulative(word_counts.sum(axis=1))

  for name, values in (("offsets", offsets), ("word_offsets", word_offsets)):
    writer.create(name, values.shape, values.dtype)
    writer.write(name, values)
  for name, dtype in _DTYPES.items():
    total = word_offsets[-1] if name.startswith("word_") else offsets[-1]
    writer.create(name, (int(total),), dtype)
  for start in range(0, len(index), _CHUNK):
    chunk = slice(start, start + _CHUNK)
    of_units = (values[chunk] for values in (index, kept, word_counts, roles, parts))
    for name, piece in assemble(texts, *of_units, around, types).items():
      writer.write(name, piece)
  lost = lengths - kept
  there = np.arange(index.shape[1]) < parts[:, None]
  there[:, CONTEXT.get(template, [])] = False
  named = np.minimum(roles, ROLES["candidate"]) if template == "joint" else roles
  return {
    "forms": texts.forms,
    "truncated_units": int(lost.any(axis=1).sum()),
    "lost_by_role": [int(lost[named == role].sum()) for role in ROLES.values()],
    "blank_units": int(((lengths == 0) & there).any(axis=1).sum()),
  }


def _distinct_texts(
  units: Sequence[tuple[str, ...]], template: str, most: int
) -> tuple[list[str], Int64[np.ndarray, "u p"], Int64[np.ndarray, "u"]]:
  """Return the distinct texts, which of them each part of each unit is, and each unit's parts.
  Parts beyond a unit's last (`joint` alone) are the empty text.
  """
  names, context = TEMPLATES[template], CONTEXT.get(template, ())
  numbers: dict[str, int] = collections.defaultdict(itertools.count().__next__)
  index, parts = array.array("q"), array.array("q")
  for row, unit in enumerate(units):
    if isinstance(unit, str) or len(unit) != len(names) and template != "joint":
      raise ValueError(f"unit {row} is {unit!r:.200}, not a tuple of {', '.join(names)}")
    for i, text in enumerate(unit):
      if i not in context and (not text or text.isspace()):
        raise InputError(
          f"unit {row} of {len(units)}, {unit!r:.300}: text {i + 1} is empty; give it a text or leave "
          "the unit out"
        )
    missing = ("",) * (most - len(unit))
    index.extend(numbers[text] for text in (*unit, *missing))
    parts.append(len(unit))
  return list(numbers), np.array(index, np.int64).reshape(-1, most), np.array(parts, np.int64)
