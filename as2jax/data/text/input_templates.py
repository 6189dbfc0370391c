"""Templates: which texts a unit joins, in what order, what is cut first; prompts before texts."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int8, Int64

from as2jax.data.record import Candidate
from as2jax.data.text.tokenizer import Special
from as2jax.data.text.words import TextTable, cumulative
from as2jax.runtime.errors import InputError

ROLES = {"question": 0, "candidate": 1, "previous": 2, "next": 3}
TEMPLATES = {
  "single": ("question",),  # or a candidate: see `as2jax.data.text.tokenise.build_units`
  "pair": ("question", "candidate"),
  "context": ("question", "candidate", "previous", "next"),
  "local_context": ("question", "previous", "candidate", "next"),
  "joint": ("question", "candidate"),  # and up to K − 1 further candidates, of roles 2, 3 … K
}


def unit_parts(template: str, question: str, candidate: Candidate) -> tuple[str, ...]:
  """Return the texts of a question's candidate in the order of `template`, for `build_units`."""
  texts = {
    "question": question,
    "candidate": candidate.text,
    "previous": candidate.previous,
    "next": candidate.next,
  }
  return tuple(texts[role] for role in TEMPLATES[template])


def split_parts(template: str) -> tuple[list[int], list[int]]:
  """Return positions of the parts that a unit must have, and of its context."""
  parts = list(enumerate(TEMPLATES[template]))
  context = [i for i, role in parts if role in ("previous", "next")]
  return [i for i, _ in parts if i not in context], context


def truncate(
  lengths: Int64[np.ndarray, "u p"], template: str, room: int | Int64[np.ndarray, "u"]
) -> Int64[np.ndarray, "u p"]:
  """Tokens kept of each part so that a unit has at most `room`: context goes first.

  `joint` keeps something of every part: the longest are cut, all of them to one length.
  """
  room = np.broadcast_to(room, len(lengths))
  if template == "joint":
    return _to_one_level(lengths, room)
  required, context = split_parts(template)
  kept = lengths.copy()
  if len(required) == 1:
    kept[:, required] = np.minimum(lengths[:, required], room[:, None])
  else:
    kept[:, required] = _longest_first(lengths[:, required], room)
  if context:
    kept[:, context] = _longest_first(lengths[:, context], room - kept[:, required].sum(axis=1))
  return kept


def _longest_first(
  lengths: Int64[np.ndarray, "u 2"], room: Int64[np.ndarray, "u"]
) -> Int64[np.ndarray, "u 2"]:
  """Cuts the longer of two parts to the other's length, then both evenly.

  As the library does: an odd token stays with the longer one, with the second of equals.
  """
  first_longer = lengths[:, 0] > lengths[:, 1]
  short, long = lengths.min(axis=1), lengths.max(axis=1)
  even = 2 * short > room
  new_short = np.where(even, room // 2, short)
  new_long = np.where(even, room - room // 2, np.minimum(long, room - short))
  return np.stack(
    [np.where(first_longer, new_long, new_short), np.where(first_longer, new_short, new_long)],
    axis=1,
  )


def _to_one_level(
  lengths: Int64[np.ndarray, "u p"], room: Int64[np.ndarray, "u"]
) -> Int64[np.ndarray, "u p"]:
  """Cuts the longest parts of each unit to the same length; a rest goes to the first of them."""
  ascending = np.sort(lengths, axis=1)
  left = np.arange(lengths.shape[1], 0, -1)  # parts as long as the one at this place, or longer
  below = np.cumsum(ascending, axis=1) - ascending
  levels = (room[:, None] - below) // left  # if those before stay whole and the others are equal
  whole = ascending <= levels
  cut = np.argmin(whole, axis=1)  # the first that does not stay whole
  level = np.where(
    whole.all(axis=1),
    lengths.max(axis=1, initial=0),
    np.take_along_axis(levels, cut[:, None], axis=1)[:, 0],
  )
  kept = np.minimum(lengths, level[:, None])
  longer = lengths > kept
  rest = np.where(longer.any(axis=1), room - kept.sum(axis=1), 0)
  return kept + (longer & (np.cumsum(longer, axis=1) <= rest[:, None]))


def count_words(
  texts: TextTable, index: Int64[np.ndarray, "u p"], kept: Int64[np.ndarray, "u p"]
) -> Int64[np.ndarray, "u p"]:
  """Words of each part that keep a token; a word cut in half keeps its first tokens."""
  text_of_word = np.repeat(np.arange(len(texts.offsets) - 1), np.diff(texts.word_offsets))
  first = texts.word_start + texts.offsets[text_of_word]
  end = np.searchsorted(first, texts.offsets[index] + kept)
  return end - texts.word_offsets[index]


def assemble(
  texts: TextTable,
  index: Int64[np.ndarray, "u p"],
  kept: Int64[np.ndarray, "u p"],
  word_counts: Int64[np.ndarray, "u p"],
  role: Int8[np.ndarray, "u p"],
  parts: Int64[np.ndarray, "u"],
  around: list[tuple[Special, ...]],
  types: tuple[int, int],
) -> dict[str, np.ndarray]:
  """Joins parts and special tokens to units.

  Args:
    texts: the tokens of the distinct texts.
    index: the text of each part.
    kept: how many of its tokens stay, from its first.
    word_counts: how many of its words stay.
    role: its role.
    parts: how many parts a unit has; those beyond are empty and have no special tokens.
    around: the special tokens before, between and after the parts.
    types: token type of the first part and of the later ones.

  Returns:
    The token and word arrays of `UnitTable` for these units, one after the other.

  """
  units, most = index.shape
  fixed, kinds, owners, places = _segments(around, types, most)
  # Of a missing part, the special tokens before it go, too; those at the end close the last one.
  last = np.arange(len(fixed)) >= len(fixed) - len(around[most])
  opens = np.minimum(np.searchsorted(places, np.arange(len(fixed))), most - 1)
  size = (last | (opens < parts[:, None])).astype(np.int64)
  size[:, places] = kept
  start = np.zeros_like(size)
  start[:, places] = texts.offsets[index]
  owner = np.minimum(owners, parts[:, None] - 1)

  sizes = size.ravel()
  ids = np.repeat(np.tile(np.array(fixed, np.int32), units), sizes)
  text = ids < 0
  ids[text] = texts.ids[_ranges(start.ravel(), sizes)[text]]
  before = (np.cumsum(size, axis=1) - size)[:, places]

  counts = word_counts.ravel()
  word = _ranges(texts.word_offsets[index].ravel(), counts)
  word_start = texts.word_start[word]
  return {
    "ids": ids,
    "type": np.repeat(np.tile(np.array(kinds, np.int8), units), sizes),
    "role": np.repeat(np.take_along_axis(role, owner, axis=1).ravel(), sizes),
    "word_start": word_start + np.repeat(before.ravel(), counts),
    "word_length": np.minimum(
      texts.word_length[word], np.repeat(kept.ravel(), counts) - word_start
    ),
    "word_role": np.repeat(role.ravel(), counts),
    "word_form": texts.word_form[word],
  }


def _segments(
  around: list[tuple[Special, ...]], types: tuple[int, int], most: int
) -> tuple[list[int], list[int], list[int], list[int]]:
  """Return a unit as a row of segments: one a special token, one a part.

  Returns:
    Of each segment its id (−1 for a part), token type and part; and the places of the parts.

  """
  fixed, kinds, owners, places = [], [], [], []
  for part in range(most + 1):
    for id_, type_ in around[part]:
      fixed.append(id_)
      kinds.append(type_)
      owners.append(max(part - 1, 0))
    if part < most:
      places.append(len(fixed))
      fixed.append(-1)
      kinds.append(types[min(part, 1)])
      owners.append(part)
  return fixed, kinds, owners, places


def _ranges(starts: Int64[np.ndarray, "n"], sizes: Int64[np.ndarray, "n"]) -> np.ndarray:
  """Return the numbers from each start on, as many as its size, one range after the other."""
  ends = cumulative(sizes)
  return np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1])


@dataclasses.dataclass(frozen=True)
class Prompts:
  """What stands before texts, without anything between prompt and text.

  Attributes:
    question: before each question, also where question and candidate form one unit.
    candidate: before each candidate that is a unit of its own.

  """

  question: str = ""
  candidate: str = ""

  def before(
    self, units: Sequence[tuple[str, ...]], roles: Sequence[int] | None
  ) -> Sequence[tuple[str, ...]]:
    """Return the texts of units with their prompts.

    Args:
      units: the texts of each unit.
      roles: of units of one text, whether each is a question (`ROLES`); None of joined units, whose
        first text is the question.

    """
    if not self.question and not self.candidate:
      return units
    if roles is None:
      return [(self.question + question, *others) for question, *others in units]
    by_role = {ROLES["question"]: self.question, ROLES["candidate"]: self.candidate}
    return [(by_role[role] + text,) for (text,), role in zip(units, roles, strict=True)]

  def check(self, tokenizer: Any, max_length: int, inputs: Sequence[Any]) -> None:
    """Compares the prompts with the length of a unit and with what else reads its words.

    Args:
      tokenizer: that reads the units; None where each table has its own.
      max_length: tokens of a unit, special tokens included.
      inputs: what the model reads beside token ids.

    Raises:
      InputError: a prompt leaves no room for a text, or an input would count its words.

    """
    for prompt in filter(None, (self.question, self.candidate)):
      readers = [entry.name for entry in inputs if entry.needs_words]
      if readers:
        raise InputError(
          f"data.prompts: the prompt {prompt!r:.80} would be counted among the words of the input "
          f"{readers[0]!r}; set data.prompts to ('', '')"
        )
      if tokenizer is None:
        continue
      special = tokenizer.special
      around = len(special.single_before) + len(special.single_after)
      tokens = int(tokenizer.encode([prompt]).lengths[0])
      if tokens + around >= max_length:
        raise InputError(
          f"data.prompts: the prompt {prompt!r:.80} has {tokens} tokens, which leaves no room for a "
          f"text in data.max_length = {max_length}; shorten the prompt or allow longer units"
        )
