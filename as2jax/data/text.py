"""From texts to units: the table of a data set, tokenised once and cached.

`load_tokenizer` reads a tokeniser from an encoder's folder, `build_units` makes the table.
"""

import array
import hashlib
import json
import pathlib
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from as2jax.data.templates import (
    ROLES, TEMPLATES, assemble, count_words, split_parts, truncate, unit_parts)
from as2jax.data.tokenizer import Tokenizer, load_tokenizer
from as2jax.data.units import VERSION, TableWriter, Unit, UnitTable, new_folder, open_table
from as2jax.data.words import WORD, cumulative, tokenize, words
from as2jax.errors import InputError

__all__ = ["ROLES", "TEMPLATES", "Tokenizer", "Unit", "UnitTable", "build_units", "distinct_units",
           "load_tokenizer", "unit_parts", "words"]

_CHUNK = 65536  # units hashed or assembled at once

T = TypeVar("T", bound=Hashable)


def distinct_units(units: Iterable[T]) -> tuple[list[T], Int64[np.ndarray, "n"]]:
  """The distinct units in order of first appearance, and the number in them of each one given."""
  numbers: dict[T, int] = {}
  index = array.array("q", (numbers.setdefault(unit, len(numbers)) for unit in units))
  return list(numbers), np.array(index, np.int64)


def build_units(
    units: Sequence[tuple[str, ...]], tokenizer: Tokenizer, *, template: str, max_length: int,
    words: bool = False, roles: Sequence[int] | np.ndarray | None = None,
    cache: str = "") -> UnitTable:
  """Tokenises each distinct text once and assembles the units from them.

  What exceeds `max_length` (special tokens counted) is cut at the right: question and candidate
  longest first (transformers' `longest_first`), and only where nothing of the context is left. A
  context part that is empty still has its separator.

  Args:
    units: the texts of each unit, in the order of `TEMPLATES[template]`.
    template: a key of `TEMPLATES`.
    words: whether to find words and their spans.
    roles: of the template `single`, the role of each unit; all questions where None.
    cache: a local folder in which the table is kept and, the next time, found and memory-mapped
      without tokenising; "" for none.

  Raises:
    InputError: an empty question or candidate, a `max_length` without room for them, an unknown
      template, a cache that cannot be written.
  """
  if template not in TEMPLATES:
    raise InputError(f"template {template!r} is unknown; known are {', '.join(TEMPLATES)}")
  if roles is None:
    roles = np.broadcast_to([ROLES[part] for part in TEMPLATES[template]],
                            (len(units), len(TEMPLATES[template]))).astype(np.int8)
  elif template != "single" or len(roles) != len(units):
    raise ValueError("`roles` goes with the template 'single', one a unit")
  roles = np.asarray(roles, np.int8).reshape(len(units), len(TEMPLATES[template]))
  around = tokenizer.special.around(roles.shape[1])
  specials, required = sum(map(len, around)), len(split_parts(template)[0])
  if max_length < specials + required:
    raise InputError(f"max_length {max_length} is too short for the template {template!r}, which "
                     f"has {specials} special tokens; give at least {specials + required}")
  room = max_length - specials
  if not cache:
    return _build(units, tokenizer, template, room, words, roles)
  if "://" in cache:
    raise InputError(f"cache {cache!r} is not a local folder; give one, or '' for none")
  key = _key(units, tokenizer, roles, [template, max_length, words])
  folder = pathlib.Path(cache).expanduser() / "units" / key
  table = open_table(folder)
  if table is None:
    with new_folder(folder) as unfinished:
      _build(units, tokenizer, template, room, words, roles, unfinished)
    table = open_table(folder)
    if table is None:
      raise InputError(f"{folder}: something else changed this cache just now; run again")
  return table


def _key(units: Sequence[tuple[str, ...]], tokenizer: Tokenizer, roles: np.ndarray,
         settings: list) -> str:
  """SHA-256 (hex) of all that the table depends on."""
  import tokenizers

  head = [VERSION, tokenizers.__version__, tokenizer.fingerprint, WORD.pattern, *settings]
  digest = hashlib.sha256(json.dumps(head).encode())
  for start in range(0, len(units), _CHUNK):
    digest.update(b"\n" + json.dumps(units[start:start + _CHUNK]).encode())
  digest.update(roles.tobytes())
  return digest.hexdigest()


def _build(
    units: Sequence[tuple[str, ...]], tokenizer: Tokenizer, template: str, room: int,
    find_words: bool, roles: np.ndarray, folder: pathlib.Path | None = None) -> UnitTable | None:
  """The table of `units`, in memory, or in `folder` (then None)."""
  names, index = _distinct_texts(units, template)
  texts = tokenize(names, tokenizer, find_words=find_words)
  lengths = np.diff(texts.offsets)[index]
  kept = truncate(lengths, template, room)
  word_counts = count_words(texts, index, kept)
  around, types = tokenizer.special.around(index.shape[1]), tokenizer.special.types
  offsets = cumulative(kept.sum(axis=1) + sum(map(len, around)))
  word_offsets = cumulative(word_counts.sum(axis=1))

  totals = {"offsets": len(offsets), "word_offsets": len(word_offsets)}
  totals |= dict.fromkeys(("ids", "type", "role"), int(offsets[-1]))
  totals |= dict.fromkeys(("word_start", "word_length", "word_role", "word_form"),
                          int(word_offsets[-1]))
  with TableWriter(totals, folder) as writer:
    writer.add(offsets=offsets, word_offsets=word_offsets)
    for start in range(0, len(index), _CHUNK):
      chunk = slice(start, start + _CHUNK)
      writer.add(**assemble(texts, index[chunk], kept[chunk], word_counts[chunk], roles[chunk],
                            around, types))
    lost = lengths - kept
    required = split_parts(template)[0]
    return writer.finish(
        forms=texts.forms,
        truncated_units=int(lost.any(axis=1).sum()),
        lost_by_role=tuple(int(lost[roles == role].sum()) for role in ROLES.values()),
        blank_units=int((lengths[:, required] == 0).any(axis=1).sum()))


def _distinct_texts(units: Sequence[tuple[str, ...]],
                    template: str) -> tuple[list[str], Int64[np.ndarray, "u p"]]:
  """The distinct texts, and which of them each part of each unit is."""
  parts, required = TEMPLATES[template], split_parts(template)[0]
  numbers: dict[str, int] = {}
  index = array.array("q")
  for row, unit in enumerate(units):
    if isinstance(unit, str) or len(unit) != len(parts):
      raise ValueError(f"unit {row} is {unit!r:.200}, not a tuple of {', '.join(parts)}")
    for i in required:
      if not unit[i] or unit[i].isspace():
        part = "text" if template == "single" else parts[i]
        beside = [text for text in unit if text and not text.isspace()]
        where = f", beside {beside!r:.300}" if beside else ""
        raise InputError(f"unit {row} of {len(units)}: the {part} is empty{where}; give it a text "
                         "or leave it out")
    index.extend(numbers.setdefault(text, len(numbers)) for text in unit)
  return list(numbers), np.array(index, np.int64).reshape(len(units), len(parts))
