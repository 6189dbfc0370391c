"""Ranks candidates, scores pairs, encodes texts and makes indexes, with a run's model kept ready.

A ranker keeps its parameters on the devices and its compiled programs between calls. A request's
batches have one of a few sizes, so that nothing is compiled once each of them has been (`warm_up`).
Several threads may share a ranker: one at a time uses the model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from as2jax.data.record import Candidate, Question
from as2jax.data.text import normalise
from as2jax.evaluation import predict, retrieval
from as2jax.evaluation.parameter_free import FittedRanker
from as2jax.evaluation.predict import Scores
from as2jax.inference.hit import Hit
from as2jax.inference.index import Index, VectorIndex, WordIndex
from as2jax.runtime.errors import InputError

ANCHOR = "documents"  # a question beside which documents stand as candidates, to be encoded


class Ranker:
  """A model with its parameters on the devices (`Run.ranker`).

  Attributes:
    predictor: with the compiled programs, which the rankers of one run share.
    variables: of the model, `{"params": …, …}`, each array with a leading axis of length one.
    seed: of the run.
    source: what `as2jax.load` opens it by; "" where it cannot be opened again.

  """

  source = ""

  def __init__(self, predictor: predict.Predictor, variables: Mapping[str, Any], *, seed: int):
    self.predictor, self.variables, self.seed = predictor, variables, seed
    self.config = predictor.components.config

  @property
  def name(self) -> str:
    """Of the model, as its config has it."""
    return self.config.model.name

  @property
  def model(self) -> Any:
    """The system."""
    return self.predictor.model

  @property
  def similarity(self) -> str:
    """The name of the score that ranks."""
    return self.model.ranking_score

  @property
  def mesh(self) -> jax.sharding.Mesh:
    """The devices that hold the parameters."""
    return self.predictor.mesh

  def rank(
    self, question: str, candidates: Sequence[str | Candidate], *, top_k: int | None = None
  ) -> list[Hit]:
    """The candidates of one question, best first; equal scores in the order given.

    Args:
      question: its text.
      candidates: texts, or with context and title.
      top_k: how many are returned; all where None.

    Raises:
      InputError: an empty text, or a score that is not finite.

    """
    if top_k is not None and top_k < 1:
      raise InputError(f"top_k = {top_k}: give 1 or more")
    made = tuple(
      Candidate(str(i), one) if isinstance(one, str) else one for i, one in enumerate(candidates)
    )
    return self.rank_many([Question("0", question, made)])[0][:top_k]

  def rank_many(self, questions: Sequence[Question]) -> list[list[Hit]]:
    """The candidates of each question, best first."""
    ranked = []
    for question, scores in zip(questions, next(iter(self.all_scores(questions).values()))):
      order = np.argsort(-scores, kind="stable").tolist()
      its = question.candidates
      ranked.append([Hit(i, float(scores[i]), its[i].text, its[i].id) for i in order])
    return ranked

  def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """The score of each (question, candidate), float32 `[n]`; higher is better.

    Raises:
      InputError: the model scores the candidates of a question together.

    """
    if self._joint:
      raise InputError(
        f"{self.name} scores the candidates of a question together, so that a pair has no score "
        "of its own: use rank_many"
      )
    asked = [Question(str(i), q, (Candidate("0", c),)) for i, (q, c) in enumerate(pairs)]
    values = next(iter(self.all_scores(asked).values()))
    return np.concatenate([np.zeros(0, np.float32), *values])

  def all_scores(self, questions: Sequence[Question]) -> Scores:
    """Every score of the model by name, one array a question; the first name is the one that ranks."""
    questions = self._checked(questions)
    if not any(question.candidates for question in questions):
      return {self.similarity: [np.zeros(0, np.float32) for _ in questions]}
    return self._scores(questions)

  def encode_query(self, texts: Sequence[str]) -> np.ndarray:
    """The vectors of questions, float32 `[n, d]`; TypeError for models without vectors."""
    self._require_vectors()
    if not len(texts):
      return self._no_vectors()
    questions = self._checked([Question(str(i), text, ()) for i, text in enumerate(texts)])
    vectors, _ = self.predictor.embed(self.variables, questions, request=True)
    return vectors[0][retrieval.numbers(q.text for q in questions)]

  def encode_document(self, texts: Sequence[str]) -> np.ndarray:
    """The vectors of candidates, float32 `[n, d]`; TypeError for models without vectors."""
    self._require_vectors()
    if not len(texts):
      return self._no_vectors()
    anchor = ANCHOR
    while anchor in texts:  # a text is encoded once, as a question or as a candidate
      anchor += " " + ANCHOR
    made = tuple(Candidate(str(i), text) for i, text in enumerate(texts))
    (question,) = self._checked([Question("0", anchor, made)])
    vectors, _ = self.predictor.embed(self.variables, (question,), request=True)
    held = retrieval.numbers([question.text, *(c.text for c in question.candidates)])
    return vectors[0][held[1:]]

  def index(self, texts: Sequence[str], *, ids: Sequence[str] | None = None) -> Index:
    """An index of documents, to be searched exactly.

    Args:
      texts: the documents.
      ids: of them; their positions where None.

    Raises:
      TypeError: the model has no vectors.
      InputError: no texts, another number of ids, or a score that cannot be searched.

    """
    self._require_vectors()
    return VectorIndex(texts, ids, self)

  def warm_up(self) -> None:
    """Compiles the programs of every size that a request may take, so that no request waits."""
    question = Question("0", "question", (Candidate("0", "candidate"),))
    self.predictor.warm_up(self.variables, (question,))

  def _scores(self, questions: tuple[Question, ...]) -> Scores:
    return self.predictor(self.variables, questions, request=True)[0]

  @property
  def _joint(self) -> bool:
    return self.model.layout in ("joint", "groups")

  def _require_vectors(self) -> None:
    if not self.model.encodes:
      raise TypeError(
        f"{self.name} reads a question and a candidate together and has no vectors of texts; "
        "a bi-encoder has"
      )

  def _no_vectors(self) -> np.ndarray:
    return np.zeros((0, self.encode_query(["question"]).shape[1]), np.float32)

  def _checked(self, questions: Sequence[Question]) -> tuple[Question, ...]:
    """The questions under the run's text rules; InputError for an empty text."""
    for question in questions:
      for what, text in (
        ("question", question.text),
        *(("candidate", candidate.text) for candidate in question.candidates),
      ):
        if not isinstance(text, str) or not text.strip():
          raise InputError(f"question {question.id!r}: a {what} is {text!r}: give a text")
    return tuple(normalise.apply(questions, self.config.data.rules))


class ParameterFreeRanker(Ranker):
  """A ranker without parameters, fitted: it ranks by words."""

  def __init__(self, fitted: FittedRanker, config: Any, *, seed: int):
    self.predictor, self.variables, self.seed, self.config = fitted, {}, seed, config

  def index(self, texts: Sequence[str], *, ids: Sequence[str] | None = None) -> Index:
    """An index of documents, to be searched exactly."""
    return WordIndex(texts, ids, self.predictor.scorer.over_pool)

  def warm_up(self) -> None:
    """Nothing is compiled."""

  def _require_vectors(self) -> None:
    raise TypeError(f"{self.name} ranks by words and has no vectors of texts; a bi-encoder has")
