"""Which words a model may leave out: stop words and punctuation (CASSIE section 3.2)."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float32, Int64

from as2jax.data.batches.batcher import Column
from as2jax.data.inputs.protocol import Input, Tables
from as2jax.data.record import Question
from as2jax.data.text.token_table import UnitTable
from as2jax.data.text.words import is_kept

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class StopWords(Input):
  """1 for each word that is a stop word or punctuation, else 0, float32.

  Where a text (one part of one unit, as far as truncation left it) has no other word, it is 0 for
  all of them.

  Attributes:
    left_out: whether the model leaves them out.
    question_words, sentence_words: the most words of a question and of a sentence that it takes.

  """

  left_out: bool
  question_words: int
  sentence_words: int

  name: ClassVar[str] = "stop_words"
  level: ClassVar[str] = "word"
  needs_words: ClassVar[bool] = True

  def columns(
    self, fitted: None, questions: Sequence[Question], tables: Tables
  ) -> Float32[np.ndarray, "w"]:
    """`1 - kept`; logs what the model's limits leave out, if anything."""
    keep = kept(tables.units)
    beyond = self._beyond(tables.units, keep)
    if any(beyond.values()):
      log.info("the most words of a text: %s; left out: %s", most_words(tables.units, keep), beyond)
    return (~keep).astype(np.float32)

  def spec(self) -> tuple[tuple[int, ...], Any]:
    """Return one float32 a word."""
    return (), np.float32

  def statistics(self, column: Column | None, units: UnitTable) -> dict[str, Any]:
    """Say what the model's limits cost: `words_beyond`."""
    return {"words_left_out": self._beyond(units, column.values == 0)}

  def _beyond(self, units: UnitTable, keep: Bool[np.ndarray, "w"]) -> dict[str, int]:
    return words_beyond(
      units,
      keep if self.left_out else np.ones_like(keep),
      question_words=self.question_words,
      sentence_words=self.sentence_words,
    )


def kept(units: UnitTable) -> Bool[np.ndarray, "w"]:
  """Tell whether each word of a table is to be kept; see `StopWords`."""
  if not len(units.word_form):
    return np.empty(0, bool)
  keep = np.asarray([is_kept(form) for form in units.forms])[units.word_form]
  unit = np.repeat(np.arange(len(units)), np.diff(units.word_offsets))
  text = unit * (int(units.word_role.max()) + 1) + units.word_role
  return keep | (np.bincount(text, weights=keep)[text] == 0)


def most_words(units: UnitTable, keep: Bool[np.ndarray, "w"]) -> dict[str, int]:
  """Return the most words, and the most kept words, that a text of a role has.

  Returns:
    {`question`, `sentence`, `question_kept`, `sentence_kept`: words}.

  """
  most = {}
  for name, weights in (("", None), ("_kept", keep)):
    counts = _counts(units, weights)
    most["question" + name] = int(counts[:, :1].max(initial=0))
    most["sentence" + name] = int(counts[:, 1:].max(initial=0))
  return most


def words_beyond(
  units: UnitTable, keep: Bool[np.ndarray, "w"], *, question_words: int, sentence_words: int
) -> dict[str, int]:
  """Say what a model that takes only so many words of a text leaves out.

  Args:
    keep: the words that the model would take.
    question_words, sentence_words: the most of a question and of a sentence.

  Returns:
    {`questions`, `sentences`: texts with more; `question_words`, `sentence_words`: words left out}.
    A text counts once in each unit that it is a part of.

  """
  counts = _counts(units, keep)
  beyond = {
    "question": np.maximum(counts[:, :1] - question_words, 0),
    "sentence": np.maximum(counts[:, 1:] - sentence_words, 0),
  }
  return {f"{name}s": int((excess > 0).sum()) for name, excess in beyond.items()} | {
    f"{name}_words": int(excess.sum()) for name, excess in beyond.items()
  }


def _counts(
  units: UnitTable, keep: Bool[np.ndarray, "w"] | None = None
) -> Int64[np.ndarray, "u roles"]:
  """Return the words, or kept words, of each role of each unit."""
  unit = np.repeat(np.arange(len(units)), np.diff(units.word_offsets))
  roles = int(units.word_role.max(initial=0)) + 1
  text = unit * roles + units.word_role
  counts = np.bincount(text, keep, minlength=len(units) * roles)
  return counts.astype(np.int64).reshape(-1, roles)
