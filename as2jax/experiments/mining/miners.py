"""What finds passages for questions: a bi-encoder, a ranker by words, or chance."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from etils import epath

from as2jax.data.record import Question
from as2jax.evaluation import retrieve
from as2jax.experiments.mining.pool import Pool
from as2jax.inference.open import load as open_ranker
from as2jax.models.lexical import BM25
from as2jax.runtime.errors import InputError

WORDS, CHANCE = "bm25", "random"


@dataclasses.dataclass(frozen=True)
class Ranking:
  """The best passages of one question.

  Attributes:
    numbers: `[k]` of the passages, best first.
    scores: `[k]` float, greater is better; NaN where the miner has none.
    positives: `[p]` float, the scores of the question's positives.

  """

  numbers: np.ndarray
  scores: np.ndarray
  positives: np.ndarray


class Miner(Protocol):
  """Finds passages. `name` is what a line of the file says of who found it."""

  name: str

  def description(self) -> dict[str, Any]:
    """What says which ranker it is."""
    ...

  def rank(self, questions: Sequence[Question], depth: int) -> list[Ranking]:
    """The best `depth` passages of each question."""
    ...


class Vectors:
  """A bi-encoder: passages are encoded once, into memory-mapped files, and searched exactly.

  Args:
    source: a run's folder or a published bi-encoder.
    pool: its passages.
    folder: for the vectors; what an interrupted call has encoded there is not encoded again.

  """

  def __init__(self, source: str, pool: Pool, folder: epath.PathLike):
    self.name = source
    self._ranker = open_ranker(source)
    if not self._ranker.has_vectors:
      raise InputError(
        f"{source} has no vectors to search a pool with; mine with a bi-encoder or {WORDS}, and give "
        "this ranker as --judge"
      )
    self._pool, self._folder = pool, folder

  @functools.cached_property
  def _index(self) -> Any:
    """Of the passages' vectors; made when the first question asks, so that what is wrong is said before."""
    return self._ranker.index(self._pool.texts, path=str(self._folder))

  def description(self) -> dict[str, Any]:
    """The ranker, the SHA-256 of its parameters and settings, and its similarity."""
    return {
      "ranker": self.name,
      "seed": self._ranker.seed,
      "fingerprint": self._ranker.fingerprint,
      "similarity": self._ranker.similarity,
    }

  def rank(self, questions: Sequence[Question], depth: int) -> list[Ranking]:
    """See `Miner`."""
    hits_by_question = self._index.search_many([q.text for q in questions], depth)
    pairs = [(q.text, q.candidates[i].text) for q in questions for i in q.positives]
    scores = self._ranker.scores(pairs) if pairs else np.zeros(0, np.float32)
    ends = np.cumsum([len(q.positives) for q in questions])
    return [
      Ranking(
        np.asarray([hit.index for hit in hits], np.int64),
        np.asarray([hit.score for hit in hits], np.float64),
        its.astype(np.float64),
      )
      for hits, its in zip(hits_by_question, np.split(scores, ends[:-1]), strict=True)
    ]


class Words:
  """BM25 over the passages."""

  name = WORDS

  def __init__(self, pool: Pool):
    self._pool = pool
    self._scores_of = BM25().fit(()).over_pool(pool.texts)

  def description(self) -> dict[str, Any]:
    """The name alone: the scorer has constants for parameters."""
    return {"ranker": WORDS}

  def rank(self, questions: Sequence[Question], depth: int) -> list[Ranking]:
    """See `Miner`; passages that share no word with the question are not found."""
    rankings = []
    for question in questions:
      scores = self._scores_of(question.text)
      best = retrieve.best(scores, depth)
      best = best[scores[best] > 0]
      right = self._pool.numbers([question.candidates[i].text for i in question.positives])
      rankings.append(
        Ranking(best, scores[best].astype(np.float64), scores[right].astype(np.float64))
      )
    return rankings


class Chance:
  """Passages drawn at random, each question's own draw: what mined negatives are compared with."""

  name = CHANCE

  def __init__(self, pool: Pool, seed: int):
    self._size, self._random = len(pool), np.random.default_rng(seed)

  def description(self) -> dict[str, Any]:
    """The name alone."""
    return {"ranker": CHANCE}

  def rank(self, questions: Sequence[Question], depth: int) -> list[Ranking]:
    """See `Miner`; there are no scores."""
    depth = min(depth, self._size)
    none = np.full(depth, np.nan)
    return [
      Ranking(self._random.choice(self._size, depth, replace=False), none, none[:0])
      for _ in questions
    ]


def open_miners(named: str, pool: Pool, folder: epath.PathLike, seed: int) -> list[Miner]:
  """The miners that `named` lists, joined by commas.

  Raises:
    InputError: none, one twice, or no ranker of that name that has vectors.

  """
  names = [name for name in named.split(",") if name]
  if not names or len(set(names)) < len(names):
    raise InputError(
      f"{named!r}: name a bi-encoder (a run or a published folder), {WORDS} or {CHANCE}, or several "
      "joined by commas, each once"
    )
  miners: list[Miner] = []
  for number, name in enumerate(names):
    if name == WORDS:
      miners.append(Words(pool))
    elif name == CHANCE:
      miners.append(Chance(pool, seed))
    else:
      miners.append(Vectors(name, pool, epath.Path(folder) / f"vectors-{number}"))
  return miners
