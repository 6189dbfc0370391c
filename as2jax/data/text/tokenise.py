"""Tokenises texts once and assembles units from them: the table of a data set, cached."""

import array
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int64

from as2jax.data.text.input_templates import (
  ROLES,
  TEMPLATES,
  assemble,
  count_words,
  split_parts,
  truncate,
)
from as2jax.data.text.token_table import VERSION, UnitTable, create_arrays, table_of
from as2jax.data.text.tokenizer import Tokenizer
from as2jax.data.text.words import WORD, cumulative, tokenize
from as2jax.runtime import cache as caches
from as2jax.runtime.errors import InputError

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
  context part that is empty still has its separator. The units of `joint` have 1 … K candidates.

  Args:
    units: the texts of each unit, in the order of `TEMPLATES[template]`.
    words: whether to find words and their spans.
    roles: of the template `single`, the role of each unit; all questions where None.
    cache: a local folder that keeps the table, from which it is memory-mapped next time; "" for
      none.

  Raises:
    InputError: an empty question or candidate, a `max_length` without room for them, an unknown
      template, a cache that is no local folder.

  """
  if template not in TEMPLATES:
    raise InputError(f"template {template!r} is unknown; known are {', '.join(TEMPLATES)}")
  parts = len(TEMPLATES[template])
  if template == "joint":
    parts = max([parts, *map(len, units)])
  if roles is not None and (template != "single" or len(roles) != len(units)):
    raise ValueError("`roles` goes with the template 'single', one a unit")
  roles = _roles(template, len(units), parts) if roles is None else np.asarray(roles, np.int8)
  roles = roles.reshape(len(units), parts)
  specials = sum(map(len, tokenizer.special.around(parts)))
  required = parts - len(split_parts(template)[1])
  if max_length < specials + required:
    raise InputError(
      f"max_length {max_length} is too short for the template {template!r}, which "
      f"has {specials} special tokens; give at least {specials + required}"
    )
  build = lambda writer: _build(units, tokenizer, template, max_length, words, roles, writer)
  if cache:
    key = _key(units, tokenizer, roles, [template, max_length, words])
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

  create_arrays(writer, int(offsets[-1]), len(units), int(word_offsets[-1]))
  writer.write("offsets", offsets)
  writer.write("word_offsets", word_offsets)
  for start in range(0, len(index), _CHUNK):
    chunk = slice(start, start + _CHUNK)
    of_units = (values[chunk] for values in (index, kept, word_counts, roles, parts))
    for name, piece in assemble(texts, *of_units, around, types).items():
      writer.write(name, piece)
  lost = lengths - kept
  there = np.arange(index.shape[1]) < parts[:, None]
  if template != "joint":
    there[:, split_parts(template)[1]] = False
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
  names, context = TEMPLATES[template], split_parts(template)[1]
  numbers: dict[str, int] = {}
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
    index.extend(numbers.setdefault(text, len(numbers)) for text in (*unit, *missing))
    parts.append(len(unit))
  return list(numbers), np.array(index, np.int64).reshape(-1, most), np.array(parts, np.int64)
