"""Ranks candidates, scores pairs, encodes texts and makes indexes, with a run's model kept ready.

A ranker keeps its parameters on the devices and its compiled programs between calls. Several threads may share
it: one at a time uses the model.
"""

import dataclasses
import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import traverse_util
from flax.errors import FlaxError

from as2jax.data import user_files
from as2jax.data.inputs.rankings import OrderGiven
from as2jax.data.record import Candidate, Question
from as2jax.data.text import normalise
from as2jax.encoders.frozen_vectors import FrozenVectors
from as2jax.evaluation import calibration, retrieve
from as2jax.evaluation.predict import FittedRanker, Scores
from as2jax.inference.index import Hit, Index, check_count, check_list
from as2jax.runtime import registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.runtime.shown import Shown

log = logging.getLogger(__name__)
ANCHOR = "documents"  # a question beside which documents stand as candidates, to be encoded


class Ranker(Shown):
  """A model with its parameters on the devices (`as2jax.load`, `Run.ranker`).

  Attributes:
    predictor: with the compiled programs, which the rankers of one run share.
    variables: of the model, `{"params": …, …}`, each array with a leading axis of length one.
    seed: of the run; None of a published model.
    config, model, mesh: the config, the system, and the devices that hold the parameters.
    name, similarity: of the model and of the score that ranks.
    independent: whether the score of a candidate is the same whatever the other candidates are.
    has_vectors: whether questions and candidates have vectors of their own (a bi-encoder).
    dtype: of the encoder's computation.
    source: what `as2jax.load` opens it by; "" where it cannot be opened again.

  """

  source = ""

  def __init__(
    self, predictor: Any, variables: Mapping[str, Any], *, seed: int | None, config: Any = None
  ):
    """Places host arrays on the devices of the predictor's mesh."""
    self.predictor, self.seed = predictor, seed
    self.config = predictor.components.config if config is None else config
    self.model = predictor.model
    self.mesh: Any = getattr(predictor, "mesh", None)
    self.variables: Any = variables
    if variables:
      places = sharding.tree_shardings(variables, self.mesh)
      self.variables = jax.tree.map(sharding.put, variables, places)
    self.name, self.similarity = self.config.model.name, self.model.ranking_score
    self.dtype = self.config.encoder.get("dtype", "float32")
    self.has_vectors, self.independent = self.model.encodes, not self._together

  def about(self) -> dict[str, Any]:
    """Return what the ranker is, how large, and what it can do."""
    seed = "" if self.seed is None else f", seed {self.seed}"
    count = sum(leaf.size for leaf in jax.tree.leaves(self.variables))
    size = f"{count:,} numbers, {self.dtype}" if count else "none: it ranks by words"
    vectors = ", encode_query, encode_document, index" * self.has_vectors
    return {
      "Ranker": f"{self.name} of {self.source or 'no folder'}{seed}",
      "parameters": size,
      "ranks by": self.similarity,
      "can": "rank" + ", scores" * (not self._together) + vectors,
    }

  @property
  def _together(self) -> bool:
    """Whether a question's candidates are scored together, or by their places among them."""
    return self.model.layout == "joint" or getattr(self.model, "position", False)

  @functools.cached_property
  def calibration(self) -> calibration.Calibration | None:
    """What makes scores probabilities, read once; None of what is no run. InputError: its files changed."""
    return None if self.seed is None else calibration.of_run(self.source, self.seed)

  @functools.cached_property
  def fingerprint(self) -> str:
    """SHA-256 of all that vectors and scores follow from: parameters, tokeniser, settings."""
    digest = hashlib.sha256(json.dumps(self._settings(), sort_keys=True, default=str).encode())
    for path, value in sorted(traverse_util.flatten_dict(self.variables, sep="/").items()):
      digest.update(path.encode() + np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()

  def _settings(self) -> dict[str, Any]:
    components, data = self.predictor.components, self.config.data
    provenance, prompts = components.provenance, dataclasses.astuple(components.prompts)
    settings = {
      "model": self.config.model.to_dict(),
      "rules": list(data.rules),
      "max_length": data.max_length,
      "dtype": self.dtype,
      "architecture": provenance["architecture"],
      "tokenizer": provenance["tokenizer"],
    }
    if any(prompts):
      settings["prompts"] = prompts
    # Weights that are no parameters of the model: those of a frozen encoder whose vectors it reads.
    if any(entry.name == FrozenVectors.name for entry in components.inputs):
      settings["weights"] = provenance["sha256"]
    return settings

  def rank(
    self, question: str, candidates: Sequence[str | Candidate], *, top_k: int | None = None
  ) -> list[Hit]:
    """Ranks the candidates of one question, best first; equal scores in the order given.

    Args:
      question: its text.
      candidates: texts, or with context and title.
      top_k: how many are returned; all where None.

    """
    if top_k is not None:
      check_count("top_k", top_k)
    check_list(candidates)
    numbered = []
    for i, one in enumerate(candidates):
      numbered.append(one if isinstance(one, Candidate) else Candidate(str(i), one))
    return self.rank_many([Question("0", question, tuple(numbered))])[0][:top_k]

  def rank_many(self, questions: Sequence[Question]) -> list[list[Hit]]:
    """Ranks the candidates of each question, best first."""
    ranked, scores = [], next(iter(self.all_scores(questions).values()))
    for question, values in zip(questions, scores, strict=True):
      hits = []
      for at in np.argsort(-values, kind="stable").tolist():
        candidate = question.candidates[at]
        hits.append(Hit(at, float(values[at]), candidate.text, candidate.id))
      ranked.append(hits)
    return ranked

  def rank_each(self, questions: Sequence[Question]) -> list[list[Hit]]:
    """Ranks the candidates of each question as if it were the only one."""
    return self.rank_many(questions)

  def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Scores each (question, candidate), float32 `[n]`; higher is better."""
    if self._together:
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

  predict = scores  # as sentence-transformers calls it

  def all_scores(self, questions: Sequence[Question]) -> Scores:
    """Returns every score by name, one array a question; the first name is the one that ranks."""
    questions = self._checked(questions)
    if not any(question.candidates for question in questions):
      return {self.similarity: [np.zeros(0, np.float32) for _ in questions]}
    return self._apply(self.predictor, questions, request=True)[0]

  def encode(self, texts: Sequence[str]) -> np.ndarray:
    """Encodes texts as `encode_document` does, where questions are read like candidates.

    InputError: a prompt stands before questions or before candidates alone.
    """
    vectors = self.encode_document(texts)
    prompts = self.predictor.components.prompts
    if prompts.question != prompts.candidate:
      raise InputError(
        f"{self.name} reads questions otherwise than candidates: use encode_query and encode_document"
      )
    return vectors

  def save(self, folder: str | os.PathLike) -> None:
    """Writes a folder for sentence-transformers or transformers (`as2jax export`), which `load` opens, too.

    InputError: a model without parameters, of no published form, or one that is published already.
    """
    if self.seed is None or not self.source:
      raise InputError(
        f"{self.source or self.name} is no run: a published model's folder is what `save` would write, "
        "copy that"
      )
    own = not type(self.model).__module__.startswith("as2jax.")
    export = registry.resolve("as2jax.inference.export:export")
    export(self.source, folder, self.seed, allow_code=own)

  def select(self, question: str, document: str | Sequence[str], **options: Any) -> Any:
    """Selects the sentences of documents that answer a question, see `as2jax.inference.selection.select`."""
    from as2jax.inference import selection

    return selection.select(self, question, document, **options)

  @property
  def longest(self) -> float:
    """The most tokens that are read of a text."""
    return self.config.data.max_length

  def tokens(self, texts: Sequence[str]) -> int:
    """Counts the tokens of texts, also those behind `longest`, without special ones."""
    return int(self.predictor.components.source.tokenizer_of(texts).encode(texts).lengths.sum())

  def encode_query(self, texts: Sequence[str]) -> np.ndarray:
    """Encodes questions, float32 `[n, d]`; TypeError for models without vectors."""
    return self._encode(texts, as_questions=True)

  def encode_document(self, texts: Sequence[str]) -> np.ndarray:
    """Encodes candidates, float32 `[n, d]`; TypeError for models without vectors."""
    return self._encode(texts, as_questions=False)

  def _encode(self, texts: Sequence[str], as_questions: bool) -> np.ndarray:
    if not self.has_vectors:
      raise TypeError(f"{self.name} has no vectors of texts; a bi-encoder has")
    check_list(texts)
    if not len(texts):
      return self._encode(["text"], as_questions)[:0]
    if as_questions:
      questions = self._checked([Question(str(i), text, ()) for i, text in enumerate(texts)])
      numbers = retrieve.numbers(question.text for question in questions)
    else:
      questions = self._checked([_documents(texts)])
      numbers = 1 + retrieve.numbers(c.text for c in questions[0].candidates)  # behind the question
    vectors = self._apply(self.predictor.embed, questions, request=True)
    return vectors[0][numbers]

  def index(
    self,
    texts: Sequence[str],
    *,
    ids: Sequence[str] | None = None,
    path: str | os.PathLike | None = None,
    progress: Callable[[int, int], None] | None = None,
  ) -> Index:
    """Makes an index of documents, to be searched exactly; each document is encoded once.

    Args:
      texts: the documents.
      ids: of them; their positions where None.
      path: a folder to keep it in, which is memory-mapped. The same call goes on with an index that
        was interrupted, and opens one that is complete.
      progress: called with the numbers of documents done and to do; None: a bar, as of training.

    """
    return Index.make(self, texts, ids, path, progress)

  def require_ranking(self) -> None:
    """Raises InputError where the model ranks again what another ranker has, which nobody has named.

    `rank` takes the candidates to come in that ranker's order, which those of a data set do not.
    """
    if self.model.layout != "joint":
      return
    for entry in self.predictor.components.inputs:
      if isinstance(getattr(entry, "ranking", None), OrderGiven):
        raise InputError(
          f"{self.source or self.name} ranks the best candidates of another ranker again, and there is no "
          "ranking of these questions: evaluate the run on them with that ranker's run file (as2jax "
          "evaluate RUN --data=FILE --set predict.ranking=RUN_FILE), and give the run.trec that it writes"
        )

  def warm_up(self) -> None:
    """Compiles the programs of every size that a request may take, so that no request waits."""
    for _ in self.programs():
      pass

  def programs(self) -> Iterator[bool]:
    """Compiles one program after another, those of common requests first; yields after each."""
    asked = (Question("0", "question", (Candidate("0", "candidate"),)),)
    programs = self.predictor.programs(self.variables, asked)
    while self._apply(lambda *_: next(programs, False), asked):
      yield True

  def _apply(self, function: Callable, questions: Sequence[Question], **options: Any) -> Any:
    """Applies a function of the predictor; InputError where the parameters are not the model's."""
    try:
      return function(self.variables, questions, **options)
    except FlaxError as error:
      text = str(error).partition("\n")[0]
      raise InputError(
        f"{self.source or self.name}: its weights do not fit the model of its config: {text}"
      ) from error

  def _checked(self, questions: Sequence[Question]) -> tuple[Question, ...]:
    """Returns the questions under the run's text rules; InputError for what is no text."""
    questions = tuple(questions)
    for question in questions:
      if not isinstance(question, Question):
        raise InputError(
          f"{question!r:.100} is no as2jax.Question: give Questions, or texts to `rank`"
        )
      texts = [question.text]
      for one in question.candidates:
        if not isinstance(one, Candidate):
          raise InputError(
            f"question {question.id!r}: a candidate is {one!r:.100}: give a Candidate, or texts to `rank`"
          )
        texts.append(one.text)
      for text in texts:
        if not isinstance(text, str) or not text.strip():
          raise InputError(
            f"question {question.id!r}: a text of it or its candidates is {text!r:.100}: give a text"
          )
    return tuple(normalise.apply(questions, self.config.data.rules))


class ParameterFreeRanker(Ranker):
  """A ranker without parameters, fitted: it ranks by words."""

  def __init__(self, fitted: FittedRanker, config: Any, *, seed: int):
    super().__init__(fitted, {}, seed=seed, config=config)
    self.has_vectors, self.independent, self._scorer = False, False, fitted.scorer

  def over_pool(self, texts: Sequence[str]) -> Callable[[str], np.ndarray]:
    """Returns the function from a question to the float32 scores `[n]` of texts."""
    (documents,) = self._checked([_documents(texts)])
    scores_of = self._scorer.over_pool([candidate.text for candidate in documents.candidates])
    return lambda question: scores_of(self._checked([Question("0", question, ())])[0].text)

  @property
  def longest(self) -> float:
    """Words read every text whole."""
    return float("inf")

  def rank_each(self, questions: Sequence[Question]) -> list[list[Hit]]:
    """Ranks each question alone; `rank_many` would count words in the candidates of all."""
    return [self.rank_many([question])[0] for question in questions]

  def _settings(self) -> dict[str, Any]:
    settings = {"model": self.config.model.to_dict(), "rules": list(self.config.data.rules)}
    if self.predictor.model.reads_training:
      settings["train"] = self.predictor.train
    return settings

  def programs(self) -> Iterator[bool]:
    """Compiles nothing."""
    return iter(())


def ranked_rows(
  own: user_files.OwnFile, scores: Sequence[np.ndarray], top: int | None = None
) -> list[dict[str, Any]]:
  """Returns the rows of a user's table, best first in each question, with rank from 1 and score.

  Questions without candidates have no row; the log counts them.
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


def _documents(texts: Sequence[str]) -> Question:
  return Question("0", ANCHOR, tuple(Candidate(str(i), text) for i, text in enumerate(texts)))
