"""Which words a model may leave out: stop words and punctuation (CASSIE section 3.2)."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float32

from as2jax.data.batches.batcher import Column
from as2jax.data.inputs.protocol import Input, Tables
from as2jax.data.record import Question
from as2jax.data.text.token_table import UnitTable
from as2jax.data.text.words import is_kept

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class StopWords(Input):
  """Gives 1 for each word that is a stop word or punctuation, else 0, float32.
  Where a text (one part of one unit, as far as truncation left it) has no other word, it is 0 for
  all of them. `left_out` says whether the model leaves them out, `question_words` and
  `sentence_words` how many words of a question and of a sentence it takes.
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
    """Return `1 - kept`; log what the model's limits leave out, if anything."""
    keep = kept(tables.units)
    beyond = self._beyond(tables.units, keep)
    if any(beyond.values()):
      log.info("words beyond the most that the model takes of a text, left out: %s", beyond)
    return (~keep).astype(np.float32)

  def spec(self) -> tuple[tuple[int, ...], Any]:
    """Return one float32 a word."""
    return (), np.float32

  def statistics(self, column: Column | None, units: UnitTable) -> dict[str, Any]:
    """Return what the model's limits cost."""
    return {"words_left_out": self._beyond(units, column.values == 0)}

  def _beyond(self, units: UnitTable, keep: Bool[np.ndarray, "w"]) -> dict[str, int]:
    """Count the texts with more words than the model takes, and these words.
    A text counts once in each unit that it is a part of.
    """
    taken = keep if self.left_out else None
    roles = int(units.word_role.max(initial=0)) + 1
    unit = np.repeat(np.arange(len(units)), np.diff(units.word_offsets))
    counts = np.bincount(unit * roles + units.word_role, taken, minlength=len(units) * roles)
    counts = counts.astype(np.int64).reshape(-1, roles)
    questions = np.maximum(counts[:, :1] - self.question_words, 0)
    sentences = np.maximum(counts[:, 1:] - self.sentence_words, 0)
    return {
      "questions": int((questions > 0).sum()),
      "sentences": int((sentences > 0).sum()),
      "question_words": int(questions.sum()),
      "sentence_words": int(sentences.sum()),
    }


def kept(units: UnitTable) -> Bool[np.ndarray, "w"]:
  """Tell of each word of a table whether it is to be kept; see `StopWords`."""
  if not len(units.word_form):
    return np.empty(0, bool)
  keep = np.asarray([is_kept(form) for form in units.forms])[units.word_form]
  unit = np.repeat(np.arange(len(units)), np.diff(units.word_offsets))
  text = unit * (int(units.word_role.max()) + 1) + units.word_role
  return keep | (np.bincount(text, weights=keep)[text] == 0)
