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
CONTEXT = {"context": [2, 3], "local_context": [1, 3]}  # places of the parts that may be empty


def unit_parts(template: str, question: str, candidate: Candidate) -> tuple[str, ...]:
  """Return the texts of a question's candidate in the order of `template`, for `build_units`."""
  texts = dict(zip(ROLES, (question, candidate.text, candidate.previous, candidate.next)))
  return tuple(texts[role] for role in TEMPLATES[template])


def truncate(
  lengths: Int64[np.ndarray, "u p"], template: str, room: int | Int64[np.ndarray, "u"]
) -> Int64[np.ndarray, "u p"]:
  """Return the tokens kept of each part so that a unit has at most `room`: context goes first.
  `joint` keeps something of every part: the longest are cut, all of them to one length.
  """
  room = np.broadcast_to(room, len(lengths))
  if template == "joint":
    return _to_one_level(lengths, room)
  if template == "single":
    return np.minimum(lengths, room[:, None])
  if template == "pair":
    return _longest_first(lengths, room)
  kept, context = lengths.copy(), CONTEXT[template]
  required = [i for i in range(4) if i not in context]
  kept[:, required] = _longest_first(lengths[:, required], room)
  kept[:, context] = _longest_first(lengths[:, context], room - kept[:, required].sum(axis=1))
  return kept


def _longest_first(
  lengths: Int64[np.ndarray, "u 2"], room: Int64[np.ndarray, "u"]
) -> Int64[np.ndarray, "u 2"]:
  """Cut the longer of two parts to the other's length, then both evenly.
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
  """Cut the longest parts of each unit to one length; a rest goes to the first of them."""
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
  """Count the words of each part that keep a token; a word cut in half keeps its first tokens."""
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
  """Join parts and special tokens to the arrays of `UnitTable`, unit after unit.

  `index` is the text of each part, of which the first `kept` tokens and `word_counts` words stay. A
  unit has `parts` parts; those beyond are empty, without special tokens. `around` are the special
  tokens before, between and after the parts, `types` the token types of the first part and of later
  ones.
  """
  units, most = index.shape
  # A unit is a row of segments, one a special token, one a part: of each its id (-1 for a part),
  # token type and part; and the places of the parts.
  fixed, kinds, owners, places = [], [], [], []
  for part in range(most + 1):
    fixed += [id_ for id_, _ in around[part]]
    kinds += [type_ for _, type_ in around[part]]
    owners += [max(part - 1, 0)] * len(around[part])
    if part < most:
      places.append(len(fixed))
      fixed.append(-1)
      kinds.append(types[min(part, 1)])
      owners.append(part)
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


def _ranges(starts: Int64[np.ndarray, "n"], sizes: Int64[np.ndarray, "n"]) -> np.ndarray:
  """Return the numbers from each start on, as many as its size, one range after the other."""
  ends = cumulative(sizes)
  return np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1])


@dataclasses.dataclass(frozen=True)
class Prompts:
  """Holds what stands before texts, without anything between prompt and text.
  `question` is before each question, also where question and candidate form one unit; `candidate`
  before each candidate that is a unit of its own.
  """

  question: str = ""
  candidate: str = ""

  def before(
    self, units: Sequence[tuple[str, ...]], roles: Sequence[int] | None
  ) -> Sequence[tuple[str, ...]]:
    """Return the texts of units with their prompts.
    `roles` says which units of one text are questions (`ROLES`); None of joined units.
    """
    if not self.question and not self.candidate:
      return units
    if roles is None:
      return [(self.question + question, *others) for question, *others in units]
    by_role = {ROLES["question"]: self.question, ROLES["candidate"]: self.candidate}
    return [(by_role[role] + text,) for (text,), role in zip(units, roles, strict=True)]

  def check(self, tokenizer: Any, max_length: int, inputs: Sequence[Any]) -> None:
    """Raise InputError where a prompt leaves no room for a text, or an input would count its words.
    `tokenizer` is None where each table has its own; `inputs` are what the model reads beside ids.
    """
    for prompt in filter(None, (self.question, self.candidate)):
      for entry in inputs:
        if entry.needs_words:
          raise InputError(
            f"data.prompts: the prompt {prompt!r:.80} would be counted among the words of the input "
            f"{entry.name!r}; set data.prompts to ('', '')"
          )
      if tokenizer is None:
        continue
      around = sum(map(len, tokenizer.special.around(1)))
      tokens = int(tokenizer.encode([prompt]).lengths[0])
      if tokens + around >= max_length:
        raise InputError(
          f"data.prompts: the prompt {prompt!r:.80} has {tokens} tokens, which leaves no room for a "
          f"text in data.max_length = {max_length}; shorten the prompt or allow longer units"
        )
