"""Word overlap of a question and a candidate, as two features of the pair (M²S-Net section 3.3).

Words are those of the overlap baselines (`as2jax.models.lexical`), of the whole texts. How rare a
word is, is counted in the candidates of the training split.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float32

from as2jax.data.inputs.document_frequency import count, sentences
from as2jax.data.inputs.protocol import Input, Tables
from as2jax.data.record import Question
from as2jax.data.text.words import plain_words

Fitted = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class WordOverlap(Input):
  """The two `features` of each (question, candidate), float32; for layouts of one candidate each."""

  name: ClassVar[str] = "word_overlap"
  level: ClassVar[str] = "example"

  def fit(self, questions: Sequence[Question]) -> dict[str, Any]:
    """{`sentences`: number of distinct candidates, `frequency`: {word: those that hold it}}."""
    texts = sentences(questions)
    return {"sentences": len(texts), "frequency": count(texts, plain_words)}

  def columns(
    self, fitted: Fitted, questions: Sequence[Question], tables: Tables
  ) -> Float32[np.ndarray, "e 2"]:
    """The two `features` of each example."""
    split = functools.cache(_words)  # of each distinct text once
    examples = tables.examples
    values = np.zeros((len(examples), 2), np.float32)
    pairs = zip(examples.question.tolist(), examples.candidate.tolist(), strict=True)
    for e, (q, c) in enumerate(pairs):
      question = questions[q]
      values[e] = _features(split(question.text), split(question.candidates[c].text), fitted)
    return values

  def spec(self) -> tuple[tuple[int, ...], Any]:
    """Two float32 an example."""
    return (2,), np.float32


def inverse_frequency(word: str, fitted: Fitted) -> float:
  """IDF(w) = ln(N / n_w), n_w counted as 1 where no sentence holds w; 0 where N = 0."""
  return math.log(max(fitted["sentences"], 1)) - math.log(fitted["frequency"].get(word, 1))


def features(question: str, candidate: str, fitted: Fitted) -> tuple[float, float]:
  """Shared word types over the sum of both lengths in words: their number, and their summed IDF.

  0 where neither text has a word.
  """
  return _features(_words(question), _words(candidate), fitted)


def _words(text: str) -> tuple[int, dict[str, None]]:
  """The number of words of a text, and its types in order."""
  found = plain_words(text)
  return len(found), dict.fromkeys(found)


def _features(question, candidate, fitted):
  (m, asked), (n, there) = question, candidate
  shared = [word for word in asked if word in there]
  length = max(m + n, 1)
  return len(shared) / length, sum(inverse_frequency(word, fitted) for word in shared) / length
