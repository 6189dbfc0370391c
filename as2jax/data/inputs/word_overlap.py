"""Words that the training data count: document frequencies (CASSIE section 3.2), and the word overlap of a
question and a candidate as two features of the pair (M²S-Net section 3.3); which words a model may
leave out: stop words and punctuation.

Words of the overlap are those of the overlap baselines (`as2jax.models.lexical`), of the whole texts.
"""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float32

from as2jax.data.inputs.protocol import Input, Tables
from as2jax.data.record import Question
from as2jax.data.text.input_templates import ROLES
from as2jax.data.text.tokenise import UnitTable
from as2jax.data.text.words import is_kept, plain_words, words


def count(texts: Iterable[str], split: Callable[[str], Iterable[str]]) -> dict[str, int]:
  """Return the number of `texts` that hold each word, in alphabetical order of the words."""
  counts = Counter(word for text in texts for word in set(split(text)))
  return dict(sorted(counts.items()))


def sentences(questions: Iterable[Question]) -> list[str]:
  """Return the distinct candidate sentences of `questions`, in order of first appearance."""
  return list(dict.fromkeys(c.text for question in questions for c in question.candidates))


@dataclasses.dataclass(frozen=True)
class DocumentFrequency(Input):
  """Gives the document frequency of each word, float32; 1 for a word not in the training data.
  Of a question's word among the training questions, each counted once whatever its text; of any
  other word among the distinct candidate sentences.
  """

  name: ClassVar[str] = "document_frequency"
  level: ClassVar[str] = "word"
  needs_words: ClassVar[bool] = True

  def fit(self, questions: Sequence[Question]) -> dict[str, dict[str, int]]:
    """Return {`questions`, `sentences`: {lower-cased form: number of texts}}."""
    forms = lambda text: (form for form, _, _ in words(text))
    return {
      "questions": count((question.text for question in questions), forms),
      "sentences": count(sentences(questions), forms),
    }

  def columns(
    self, fitted: Mapping[str, Any], questions: Sequence[Question], tables: Tables
  ) -> Float32[np.ndarray, "w"]:
    """Return the document frequency of each word."""
    units = tables.units
    if not len(units.word_form):
      return np.empty(0, np.float32)
    asked, written = (
      np.asarray([fitted[side].get(form, 1) for form in units.forms], np.float32)[units.word_form]
      for side in ("questions", "sentences")
    )
    return np.where(np.asarray(units.word_role) == ROLES["question"], asked, written)


Fitted = Mapping[str, Any]
Form = Literal["by_length", "counts", "shares"]
FORMS: tuple[Form, ...] = get_args(Form)


@dataclasses.dataclass(frozen=True)
class WordOverlap(Input):
  """Gives the two `features` of each (question, candidate), float32; for one candidate an example.

  The number of shared word types and their summed IDF are divided as `form` says: `by_length`, by
  the sum of both texts' lengths in words; `counts`, by nothing; `shares`, by the number of the
  question's word types and by their summed IDF. `standardise`: each feature has mean 0 and standard
  deviation 1 over the judged pairs of the training questions.
  """

  name: ClassVar[str] = "word_overlap"
  form: Form = "by_length"
  standardise: bool = False

  def fit(self, questions: Sequence[Question]) -> dict[str, Any]:
    """Return {`sentences`: number of distinct candidates, `frequency`: {word: those that hold it}}.
    Where features are standardised, `mean` and `deviation` too, [2] each.
    """
    texts = sentences(questions)
    fitted = {"sentences": len(texts), "frequency": count(texts, plain_words)}
    if self.standardise:
      pairs = ((q.text, c.text) for q in questions for c in q.candidates if c.label >= 0)
      values = self._features(pairs, fitted)
      if not len(values):
        values = np.zeros((1, 2))
      deviation = values.std(axis=0)
      fitted["mean"] = values.mean(axis=0).tolist()
      fitted["deviation"] = np.where(deviation > 0, deviation, 1.0).tolist()
    return fitted

  def columns(
    self, fitted: Fitted, questions: Sequence[Question], tables: Tables
  ) -> Float32[np.ndarray, "e 2"]:
    """Return the two `features` of each example."""
    examples = tables.examples
    pairs = zip(examples.question.tolist(), examples.candidate.tolist(), strict=True)
    return self.features(
      ((questions[q].text, questions[q].candidates[c].text) for q, c in pairs), fitted
    )

  def features(
    self, pairs: Iterable[tuple[str, str]], fitted: Fitted
  ) -> Float32[np.ndarray, "e 2"]:
    """Return shared word types of each (question, candidate): number and summed IDF, in `form`.
    0 where neither text has a word, before they are standardised. `fitted` is what `fit` gave.
    """
    values = self._features(pairs, fitted)
    if self.standardise:
      values = (values - np.asarray(fitted["mean"])) / np.asarray(fitted["deviation"])
    return np.asarray(values, np.float32)

  def _features(self, pairs: Iterable[tuple[str, str]], fitted: Fitted) -> np.ndarray:
    """Return the features in float64, not standardised."""
    split = functools.cache(plain_words)
    idf = functools.cache(functools.partial(inverse_frequency, fitted=fitted))
    values = []
    for question, candidate in pairs:
      asked, present = split(question), set(split(candidate))
      types = dict.fromkeys(asked)
      shared = [word for word in types if word in present]
      number, weight = len(shared), sum(map(idf, shared))
      if self.form == "shares":
        number, weight = number / max(len(types), 1), weight / (sum(map(idf, types)) or 1.0)
      elif self.form == "by_length":
        length = max(len(asked) + len(split(candidate)), 1)
        number, weight = number / length, weight / length
      values.append((number, weight))
    return np.asarray(values, np.float64).reshape(-1, 2)

  def spec(self) -> tuple[tuple[int, ...], Any]:
    """Return two float32 an example."""
    return (2,), np.float32


def inverse_frequency(word: str, fitted: Fitted) -> float:
  """Return IDF(w) = ln(N / n_w), n_w counted as 1 where no sentence holds w; 0 where N = 0."""
  return math.log(max(fitted["sentences"], 1)) - math.log(fitted["frequency"].get(word, 1))


@dataclasses.dataclass(frozen=True)
class StopWords(Input):
  """Gives 1 for each word that is a stop word or punctuation, else 0, float32.
  Where a text (one part of one unit, as far as truncation left it) has no other word, it is 0 for
  all of them.
  """

  name: ClassVar[str] = "stop_words"
  level: ClassVar[str] = "word"
  needs_words: ClassVar[bool] = True

  def columns(
    self, fitted: None, questions: Sequence[Question], tables: Tables
  ) -> Float32[np.ndarray, "w"]:
    """Return `1 - kept`."""
    return (~kept(tables.units)).astype(np.float32)


def kept(units: UnitTable) -> Bool[np.ndarray, "w"]:
  """Tell of each word of a table whether it is to be kept; see `StopWords`."""
  if not len(units.word_form):
    return np.empty(0, bool)
  keep = np.asarray([is_kept(form) for form in units.forms])[units.word_form]
  unit = np.repeat(np.arange(len(units)), np.diff(units.word_offsets))
  text = unit * (int(units.word_role.max()) + 1) + units.word_role
  return keep | (np.bincount(text, weights=keep)[text] == 0)
