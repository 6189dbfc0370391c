"""Document frequencies: in how many texts of the training data a word occurs (CASSIE section 3.2).

freq(w) of a question's word is the number of training questions that hold it. The paper does not say
what a sentence's is: here that of training sentences that hold it.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float32

from as2jax.data.inputs.protocol import Input, Tables
from as2jax.data.record import Question
from as2jax.data.text.input_templates import ROLES
from as2jax.data.text.token_table import UnitTable
from as2jax.data.text.words import words


def count(texts: Iterable[str], split: Callable[[str], Iterable[str]]) -> dict[str, int]:
  """The number of `texts` that hold each word, in alphabetical order of the words.

  Args:
    texts: each is counted as often as it comes.
    split: the words of a text.

  """
  counts = Counter(word for text in texts for word in set(split(text)))
  return dict(sorted(counts.items()))


def sentences(questions: Iterable[Question]) -> list[str]:
  """The distinct candidate sentences of `questions`, in order of first appearance."""
  return list(dict.fromkeys(c.text for question in questions for c in question.candidates))


@dataclasses.dataclass(frozen=True)
class DocumentFrequency(Input):
  """The document frequency of each word, float32; 1 for a word that the training data do not hold.

  Of a question's word among the training questions, each counted once whatever its text; of any
  other word among the distinct candidate sentences. The sentences around them count where they are
  candidates themselves.
  """

  name: ClassVar[str] = "document_frequency"
  level: ClassVar[str] = "word"
  needs_words: ClassVar[bool] = True

  def fit(self, questions: Sequence[Question]) -> dict[str, dict[str, int]]:
    """{`questions`, `sentences`: {lower-cased form: number of texts}}."""
    return {
      "questions": count((question.text for question in questions), _forms),
      "sentences": count(sentences(questions), _forms),
    }

  def columns(
    self, fitted: Mapping[str, Any], questions: Sequence[Question], tables: Tables
  ) -> Float32[np.ndarray, "w"]:
    """The frequencies of `weigh`."""
    return weigh(tables.units, fitted)

  def spec(self) -> tuple[tuple[int, ...], Any]:
    """One float32 a word."""
    return (), np.float32


def _forms(text: str) -> Iterable[str]:
  return (form for form, _, _ in words(text))


def weigh(units: UnitTable, fitted: Mapping[str, Mapping[str, int]]) -> Float32[np.ndarray, "w"]:
  """The document frequency of each word of a table; see `DocumentFrequency.fit`."""
  if not len(units.word_form):
    return np.empty(0, np.float32)
  look_up = lambda counts: np.asarray([counts.get(form, 1) for form in units.forms], np.float32)
  of_question = np.asarray(units.word_role) == ROLES["question"]
  return np.where(
    of_question,
    look_up(fitted["questions"])[units.word_form],
    look_up(fitted["sentences"])[units.word_form],
  )
