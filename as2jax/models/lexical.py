r"""Rankers by words, without training steps: overlap, IDF-weighted overlap, a regression, BM25; and by order.

Words are those of `plain_words`, a *type* is a distinct word; stop words stay in. Ties are
common. Over a pool a question touches only the texts that hold one of its words.
"""

import dataclasses
import functools
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

import numpy as np
import scipy.optimize
import scipy.special
from flax import linen as nn

from as2jax.data.inputs import word_overlap as overlap_features
from as2jax.data.record import Candidate, Question, in_order
from as2jax.data.text.words import plain_words
from as2jax.models.system import ParameterFreeSystem, Scorer
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import OneOf

K1, B = 1.5, 0.75  # of BM25: how slowly repeated words saturate, how much long texts are held back


class WordOverlap(ParameterFreeSystem):
  """Scores a candidate by how many word types it shares with its question.
  The word count of Yang et al. 2015 (WikiQA), who leave out stop words, which this does not.
  """

  score_names: ClassVar[tuple[str, ...]] = ("word_overlap",)
  reads_training: ClassVar[bool] = False

  @nn.nowrap
  def fit(self, questions: Sequence[Question]) -> Scorer:
    return OverlapScorer(lambda word: 1.0)


class IDFOverlap(ParameterFreeSystem):
  """Scores a candidate by the summed IDF of the word types it shares with its question.
  IDF(w) = ln(N / n_w) over the N distinct candidate sentences of the training questions, n_w of
  which hold w (1 where none does); 0 where N is 0.
  """

  score_names: ClassVar[tuple[str, ...]] = ("idf_overlap",)

  @nn.nowrap
  def fit(self, questions: Sequence[Question]) -> Scorer:
    fitted = overlap_features.WordOverlap().fit(tuple(questions))
    return OverlapScorer(functools.partial(overlap_features.inverse_frequency, fitted=fitted))


class OverlapRegression(ParameterFreeSystem):
  """Scores a candidate by a logistic regression on M²S-Net's two overlap features.
  What the network must at least learn from the features beside its convolutions. Fitted to the
  judged candidates of the training questions by maximum likelihood. `overlap` is a form of
  `as2jax.data.inputs.word_overlap.WordOverlap`.
  """

  overlap: Annotated[str, OneOf(overlap_features.FORMS)]
  score_names: ClassVar[tuple[str, ...]] = ("overlap_regression",)

  @nn.nowrap
  def fit(self, questions: Sequence[Question]) -> Scorer:
    features = overlap_features.WordOverlap(self.overlap, standardise=True)
    judged = [(q.text, c.text, c.label) for q in questions for c in q.candidates if c.label >= 0]
    labels = np.asarray([label > 0 for *_, label in judged], np.float64)
    if len(np.unique(labels)) < 2:
      raise InputError(
        "overlap_regression: the training questions have no candidates of both labels; it cannot be"
        " fitted"
      )
    fitted = features.fit(questions)
    x = features.features(((q, c) for q, c, _ in judged), fitted).astype(np.float64)
    x, sign = np.concatenate([x, np.ones((len(x), 1))], axis=1), np.where(labels > 0, 1.0, -1.0)

    def loss(w):  # a ridge keeps the weights finite where labels are separable
      margin = sign * (x @ w)
      value = np.logaddexp(0, -margin).mean() + 0.5e-6 * w @ w
      return value, -(sign * scipy.special.expit(-margin)) @ x / len(x) + 1e-6 * w

    result = scipy.optimize.minimize(loss, np.zeros(x.shape[1]), jac=True, method="BFGS")
    return RegressionScorer(features, fitted, result.x[:-1])


class BM25(ParameterFreeSystem):
  """Scores a candidate by BM25 (Lucene's variant: IDF is never negative).

  Nothing is counted in the training questions: the corpus is all distinct candidate sentences of
  the questions that are ranked, so that a score depends on the split; over a pool, the pool's texts.

  >>> scores = BM25().fit(()).over_pool(["ice is frozen water", "a dog came"])("what is ice")
  >>> bool(scores[0] > scores[1])
  True
  """

  score_names: ClassVar[tuple[str, ...]] = ("bm25",)
  reads_training: ClassVar[bool] = False

  @nn.nowrap
  def fit(self, questions: Sequence[Question]) -> Scorer:
    return BM25Scorer()


class DocumentOrder(ParameterFreeSystem):
  """Ranks candidates as they stand in their document, the first sentence first.
  What a ranker must beat where answers stand early: of a system that reads neighbours, the empty
  place before a candidate tells that it is the first.
  """

  score_names: ClassVar[tuple[str, ...]] = ("document_order",)
  reads_training: ClassVar[bool] = False

  @nn.nowrap
  def fit(self, questions: Sequence[Question]) -> Scorer:
    return OrderScorer()


@dataclasses.dataclass(frozen=True)
class OverlapScorer:
  """Sums `weight` over the word types that a text shares with a question."""

  weight: Callable[[str], float]

  def score(self, questions: Sequence[Question]) -> list[np.ndarray]:
    return [self.over_pool([c.text for c in q.candidates])(q.text) for q in questions]

  def over_pool(self, texts: Sequence[str]) -> Callable[[str], np.ndarray]:
    distinct, number = _distinct(texts)
    holders: dict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(distinct):
      for word in set(plain_words(text)):
        holders[word].append(i)
    places = {word: np.asarray(numbers, np.int64) for word, numbers in holders.items()}

    def score(question: str) -> np.ndarray:
      total = np.zeros(len(distinct), np.float64)
      for word in dict.fromkeys(plain_words(question)):  # so that equal sets give equal sums
        if word in places:
          total[places[word]] += self.weight(word)
      return total[number].astype(np.float32)

    return score


class OrderScorer:
  """Gives the candidate at place i the score −i."""

  def score(self, questions: Sequence[Question]) -> list[np.ndarray]:
    if any(len(q.candidates) > 1 for q in questions) and not in_order(questions):
      raise InputError(
        "document_order: no candidate is the neighbour of another, so that their places in a document "
        "are not known: give the columns previous and next, or take another baseline"
      )
    return [-np.arange(len(q.candidates), dtype=np.float32) for q in questions]

  def over_pool(self, texts: Sequence[str]) -> Callable[[str], np.ndarray]:
    raise InputError(
      "document_order: a pool has no order for a question; set evaluation.task=rerank, or take bm25"
    )


@dataclasses.dataclass(frozen=True)
class RegressionScorer:
  """Sums overlap features, `weights` [2] times each; the intercept does not rank and is left out."""

  features: overlap_features.WordOverlap
  fitted: overlap_features.Fitted
  weights: np.ndarray

  def score(self, questions: Sequence[Question]) -> list[np.ndarray]:
    pairs = [(q.text, c.text) for q in questions for c in q.candidates]
    scores = (self.features.features(pairs, self.fitted) @ self.weights).astype(np.float32)
    ends = np.cumsum([len(q.candidates) for q in questions], dtype=np.int64)
    return np.split(scores, ends[:-1]) if questions else []

  def over_pool(self, texts: Sequence[str]) -> Callable[[str], np.ndarray]:
    candidates = tuple(Candidate(str(i), text) for i, text in enumerate(texts))
    return lambda question: self.score([Question("", question, candidates)])[0]


class BM25Scorer:
  """Scores by BM25 with the constants k1 and b.
  By bm25s rather than rank_bm25, whose Okapi IDF is negative for frequent words.
  """

  def score(self, questions: Sequence[Question]) -> list[np.ndarray]:
    over_pool = self.over_pool([c.text for q in questions for c in q.candidates])
    ends = np.cumsum([0, *(len(q.candidates) for q in questions)])
    return [over_pool(q.text)[a:b] for q, a, b in zip(questions, ends, ends[1:])]

  def over_pool(self, texts: Sequence[str]) -> Callable[[str], np.ndarray]:
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # which it sets to DEBUG itself
    distinct, number = _distinct(texts)
    tokens = [plain_words(text) for text in distinct]
    if not any(tokens):  # the library cannot index a corpus without a word
      return lambda question: np.zeros(len(texts), np.float32)
    vocabulary: dict[str, int] = {}
    ids = [[vocabulary.setdefault(word, len(vocabulary)) for word in text] for text in tokens]
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index((ids, vocabulary), create_empty_token=False, show_progress=False)

    def score(question: str) -> np.ndarray:
      query = [vocabulary[word] for word in plain_words(question) if word in vocabulary]
      return index.get_scores_from_ids(query).astype(np.float32)[number]

    return score


def _distinct(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
  """Return the distinct texts, and for each text its number among them `[n]`."""
  numbers: dict[str, int] = {}
  number = [numbers.setdefault(text, len(numbers)) for text in texts]
  return list(numbers), np.asarray(number, np.int64)
