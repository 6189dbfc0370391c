"""Ranks candidates, scores pairs, encodes texts and makes indexes, with a run's model kept ready.

A ranker keeps its parameters on the devices and its compiled programs between calls. A request's
batches have one of a few sizes, so that nothing is compiled once each of them has been (`warm_up`).
Several threads may share a ranker: one at a time uses the model.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from flax import traverse_util
from flax.errors import FlaxError

from as2jax.data import user_files
from as2jax.data.inputs.first_stage_ranking import OrderGiven
from as2jax.data.record import Candidate, Question
from as2jax.data.text import normalise
from as2jax.encoders.frozen_vectors import FrozenVectors
from as2jax.evaluation import retrieve
from as2jax.evaluation.predict import FittedRanker, Scores
from as2jax.inference.index import Index
from as2jax.inference.index_part import Hit
from as2jax.runtime.errors import InputError

if TYPE_CHECKING:
  import pandas

log = logging.getLogger(__name__)
ANCHOR = "documents"  # a question beside which documents stand as candidates, to be encoded


class Ranker:
  """A model with its parameters on the devices (`Run.ranker`).

  Attributes:
    predictor: with the compiled programs, which the rankers of one run share.
    variables: of the model, `{"params": …, …}`, each array with a leading axis of length one.
    seed: of the run; None of a published model.
    config, model, mesh: the config, the system, and the devices that hold the parameters.
    name, similarity: of the model and of the score that ranks.
    has_vectors: whether questions and candidates have vectors of their own (a bi-encoder).
    dtype: of the encoder's computation.
    source: what `as2jax.load` opens it by; "" where it cannot be opened again.

  """

  source = ""

  def __init__(
    self, predictor: Any, variables: Mapping[str, Any], *, seed: int | None, config: Any = None
  ):
    self.predictor, self.variables, self.seed = predictor, variables, seed
    self.config = predictor.components.config if config is None else config
    self.model, self.mesh = predictor.model, getattr(predictor, "mesh", None)
    self.name, self.similarity = self.config.model.name, self.model.ranking_score
    self.dtype = self.config.encoder.get("dtype", "float32")
    self.has_vectors = self.model.encodes

  @functools.cached_property
  def fingerprint(self) -> str:
    """SHA-256 of all that vectors and scores follow from: parameters, tokeniser, settings."""
    digest = hashlib.sha256(json.dumps(self._settings(), sort_keys=True, default=str).encode())
    for path, value in sorted(traverse_util.flatten_dict(self.variables, sep="/").items()):
      digest.update(path.encode() + np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()

  def _settings(self) -> dict[str, Any]:
    components, data = self.predictor.components, self.config.data
    provenance, prompts = components.provenance, components.prompts
    # Weights that are no parameters of the model: those of a frozen encoder whose vectors it reads.
    frozen = any(entry.name == FrozenVectors.name for entry in components.inputs)
    return {
      **({"weights": provenance["sha256"]} if frozen else {}),
      **({"prompts": dataclasses.astuple(prompts)} if any(dataclasses.astuple(prompts)) else {}),
      "model": self.config.model.to_dict(),
      "rules": list(data.rules),
      "max_length": data.max_length,
      "dtype": self.dtype,
      "architecture": provenance["architecture"],
      "tokenizer": provenance["tokenizer"],
    }

  def rank(
    self, question: str, candidates: Sequence[str | Candidate], *, top_k: int | None = None
  ) -> list[Hit]:
    """The candidates of one question, best first; equal scores in the order given.

    Args:
      question: its text.
      candidates: texts, or with context and title.
      top_k: how many are returned; all where None.

    Raises:
      InputError: one text in place of a list, a candidate that is neither a text nor a `Candidate`,
        an empty text, or a score that is not finite.

    """
    if top_k is not None and top_k < 1:
      raise InputError(f"top_k = {top_k}: give 1 or more")
    return self.rank_many([Question("0", question, _numbered(candidates))])[0][:top_k]

  def rank_many(self, questions: Sequence[Question]) -> list[list[Hit]]:
    """The candidates of each question, best first."""
    questions, ranked = tuple(questions), []
    for question, scores in zip(questions, next(iter(self.all_scores(questions).values()))):
      order = np.argsort(-scores, kind="stable").tolist()
      its = question.candidates
      ranked.append([Hit(i, float(scores[i]), its[i].text, its[i].id) for i in order])
    return ranked

  def rank_each(self, questions: Sequence[Question]) -> list[list[Hit]]:
    """The candidates of each question, best first, as if it were the only one."""
    return self.rank_many(questions)

  def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """The score of each (question, candidate), float32 `[n]`; higher is better.

    Raises:
      InputError: the model scores the candidates of a question together, or an entry is not two
        texts.

    """
    if self._joint:
      raise InputError(
        f"{self.name} scores the candidates of a question together, so that a pair has no score "
        "of its own: use rank_many"
      )
    asked = []
    for i, pair in enumerate(pairs):
      if not isinstance(pair, (tuple, list, np.ndarray)) or len(pair) != 2:
        raise InputError(
          f"pair {i} is {pair!r:.100}: give a question and a candidate, which are two texts"
        )
      asked.append(Question(str(i), pair[0], (Candidate("0", pair[1]),)))
    values = next(iter(self.all_scores(asked).values()))
    return np.concatenate([np.zeros(0, np.float32), *values])

  def all_scores(self, questions: Sequence[Question]) -> Scores:
    """Every score of the model by name, one array a question; the first name is the one that ranks."""
    questions = self._checked(questions)
    if not any(question.candidates for question in questions):
      return {self.similarity: [np.zeros(0, np.float32) for _ in questions]}
    with self._fits():
      return self.predictor(self.variables, questions, request=True)[0]

  def encode_query(self, texts: Sequence[str]) -> np.ndarray:
    """The vectors of questions, float32 `[n, d]`; TypeError for models without vectors."""
    self._require_vectors()
    _refuse_one_text(texts, "texts")
    if not len(texts):
      return self._no_vectors()
    questions = self._checked([Question(str(i), text, ()) for i, text in enumerate(texts)])
    with self._fits():
      vectors, _ = self.predictor.embed(self.variables, questions, request=True)
    return vectors[0][retrieve.numbers(q.text for q in questions)]

  def encode_document(self, texts: Sequence[str]) -> np.ndarray:
    """The vectors of candidates, float32 `[n, d]`; TypeError for models without vectors."""
    self._require_vectors()
    _refuse_one_text(texts, "texts")
    if not len(texts):
      return self._no_vectors()
    numbered = tuple(Candidate(str(i), text) for i, text in enumerate(texts))
    (question,) = self._checked([Question("0", ANCHOR, numbered)])
    with self._fits():
      vectors, _ = self.predictor.embed(self.variables, (question,), request=True)
    held = 1 + retrieve.numbers(c.text for c in question.candidates)  # behind the question
    return vectors[0][held]

  def index(
    self,
    texts: Sequence[str],
    *,
    ids: Sequence[str] | None = None,
    path: str | os.PathLike | None = None,
    progress: Callable[[int, int], None] | None = None,
  ) -> Index:
    """An index of documents, to be searched exactly; each document is encoded once.

    Args:
      texts: the documents.
      ids: of them; their positions where None.
      path: a folder to keep it in, which is memory-mapped. The same call goes on with an index that
        was interrupted, and opens one that is complete.
      progress: called with the numbers of documents done and to do, after each part.

    Raises:
      TypeError: the model has no vectors.
      InputError: no texts, an empty one, another number of ids, a score that cannot be searched, or
        a path that holds another index or other files.

    """
    if not isinstance(self, ParameterFreeRanker):  # which ranks by words
      self._require_vectors()
    return Index.make(self, texts, ids, path, progress)

  def over_pool(self, texts: Sequence[str]) -> Callable[[str], np.ndarray]:
    """Returns the function from a question to the float32 scores `[n]` of texts (by words alone)."""
    raise TypeError(f"{self.name} does not rank by words alone: use index")

  def transform(
    self, frame: "pandas.DataFrame", *, columns: Mapping[str, str] | None = None
  ) -> "pandas.DataFrame":
    """Re-ranks a frame of candidates: `pyterrier.apply.generic(ranker.transform)`.

    Args:
      frame: a row a candidate, with the columns `qid`, `query`, `docno`, `text` or others of the
        common names (`columns.NAMES`), and optionally `previous`, `next`, `title`. Ids are not needed.
      columns: {field: column} where the names are others, such as {"candidate": "reply"}.

    Returns:
      The rows with the columns `score` and `rank` (from 0) set, best first within each question, the
      questions in the order of first sight.

    Raises:
      InputError: a column is missing, an empty text, or one qid has two queries.

    """
    if not len(frame):
      return frame.assign(score=np.zeros(0), rank=np.zeros(0, int))
    own = user_files.read(frame, labelled=False, columns=columns or {})
    order, scores, ranks = [], [], []
    for its, hits in zip(own.numbers, self.rank_many(own.questions), strict=True):
      order += [its[hit.index] for hit in hits]
      scores += [hit.score for hit in hits]
      ranks += range(len(hits))
    return frame.iloc[order].assign(score=np.asarray(scores, np.float64), rank=ranks)

  def require_ranking(self) -> None:
    """Raises InputError where the model ranks again what another ranker has, which nobody has named.

    `rank` takes the candidates to come in that ranker's order, which those of a data set do not.
    """
    inputs = self.predictor.components.inputs if self._joint else ()
    if any(isinstance(getattr(entry, "ranking", None), OrderGiven) for entry in inputs):
      raise InputError(
        f"{self.source or self.name} ranks the best candidates of another ranker again, and there is no "
        "ranking of these questions: evaluate the run on them with that ranker's run file (as2jax "
        "evaluate RUN --data=FILE --set predict.ranking=RUN_FILE), and give the run.trec that it writes"
      )

  def warm_up(self) -> None:
    """Compiles the programs of every size that a request may take, so that no request waits."""
    question = Question("0", "question", (Candidate("0", "candidate"),))
    self.predictor.warm_up(self.variables, (question,))

  @contextlib.contextmanager
  def _fits(self) -> Generator[None, None, None]:
    """Says as an InputError that the parameters are not those of the model."""
    try:
      yield
    except FlaxError as error:
      text = str(error).partition("\n")[0]
      raise InputError(
        f"{self.source or self.name}: its checkpoint does not fit the model of its config.json: {text}"
      ) from error

  @property
  def _joint(self) -> bool:
    return self.model.layout == "joint"

  def _require_vectors(self) -> None:
    if not self.has_vectors:
      raise TypeError(
        f"{self.name} reads a question and a candidate together and has no vectors of texts; "
        "a bi-encoder has"
      )

  def _no_vectors(self) -> np.ndarray:
    return np.zeros((0, self.encode_query(["question"]).shape[1]), np.float32)

  def _checked(self, questions: Sequence[Question]) -> tuple[Question, ...]:
    """The questions under the run's text rules; InputError for an empty text, or none at all."""
    questions = tuple(questions)
    for question in questions:
      for one in question.candidates:
        if not isinstance(one, Candidate):
          raise InputError(
            f"question {question.id!r}: a candidate is {one!r:.100}: give a Candidate, or texts to `rank`"
          )
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
    super().__init__(fitted, {}, seed=seed, config=config)
    self.has_vectors, self._scorer = False, fitted.scorer

  def over_pool(self, texts: Sequence[str]) -> Callable[[str], np.ndarray]:
    """The function from a question to the float32 scores `[n]` of texts, under the run's rules."""
    numbered = tuple(Candidate(str(i), text) for i, text in enumerate(texts))
    (documents,) = self._checked([Question("0", ANCHOR, numbered)])
    scores_of = self._scorer.over_pool([candidate.text for candidate in documents.candidates])

    def scores(question: str) -> np.ndarray:
      (asked,) = self._checked([Question("0", question, ())])
      return scores_of(asked.text)

    return scores

  def rank_each(self, questions: Sequence[Question]) -> list[list[Hit]]:
    """The candidates of each question; `rank_many` would count words in those of all questions."""
    return [self.rank_many([question])[0] for question in questions]

  def _settings(self) -> dict[str, Any]:
    return {"model": self.config.model.to_dict(), "rules": list(self.config.data.rules)}

  def warm_up(self) -> None:
    """Nothing is compiled."""

  def _require_vectors(self) -> None:
    raise TypeError(f"{self.name} ranks by words and has no vectors of texts; a bi-encoder has")


def ranked_rows(
  own: user_files.OwnFile, scores: Sequence[np.ndarray], top: int | None = None
) -> list[dict[str, Any]]:
  """Returns the rows of a user's table, best first in each question, with rank from 1 and score.

  A question without candidates has no row; the log says how many there are.

  Args:
    own: the table.
    scores: one array a question, one score a candidate.
    top: candidates of a question; all where None.

  """
  empty = sum(not question.candidates for question in own.questions)
  if empty:
    log.warning(
      "%d of %d questions have no candidates, and are left out", empty, len(own.questions)
    )
  own_rows = iter(user_files.rows(own, ("rank", "score")))
  result = []
  for question, values in zip(own.questions, scores, strict=True):
    rows = [next(own_rows) for _ in question.candidates]
    order = np.argsort(-np.asarray(values), kind="stable").tolist()[:top]
    for rank, at in enumerate(order, 1):
      row = rows[at]
      first = {"question_id": row.pop("question_id"), "question": row.pop("question")}
      result.append({**first, "rank": rank, "score": float(values[at]), **row})
  return result


def _numbered(candidates: Sequence[str | Candidate]) -> tuple[Candidate, ...]:
  """Candidates whose texts have their positions as ids."""
  _refuse_one_text(candidates, "candidates")
  numbered = []
  for i, one in enumerate(candidates):
    if not isinstance(one, (str, Candidate)):
      raise InputError(f"candidate {i} is {one!r:.100}: give a text or a Candidate")
    numbered.append(Candidate(str(i), one) if isinstance(one, str) else one)
  return tuple(numbered)


def _refuse_one_text(texts: object, what: str) -> None:
  """Raises InputError for a text in place of a list, which would be read letter by letter."""
  if isinstance(texts, str):
    raise InputError(f"{what} = {texts!r:.100} is one text: give a list of texts")
