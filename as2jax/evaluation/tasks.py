"""The two tasks of an evaluation: `rerank` a question's own candidates, or `retrieve` from a pool.

Both offer the same: the split (`selection`) and the metric (`selector`) that select, what to predict, measuring a split, recording it.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data.datasets import holdout
from as2jax.data.datasets.retrieval import Retrieval
from as2jax.data.record import Question
from as2jax.evaluation import (
  exact_search,
  predict,
  results,
  retrieval,
  retrieval_metrics,
  retrieve_rerank,
)
from as2jax.evaluation.retrieval import Ranked
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)


class Rerank:
  """Every question ranks its own candidates; the log says of which splits all rankings are equal."""

  def __init__(self, config: Any, data: Any, predictor: Any):
    self.config, self.data, self.predictor = config, data, predictor
    self.selection = holdout.selection_split(config.data)
    self.selector = f"{config.select}[{data.name}-clean/{self.selection}]"
    self._answerable: dict[str, list[int]] = {}
    selecting = (self.selection,) if config.mode == "train" else ()
    for split in dict.fromkeys((*selecting, *config.evaluation.splits)):
      if split in data.splits and predict.has_no_choice(data.splits[split]):
        log.warning("%s, %s: %s", data.name, split, predict.NO_CHOICE)

  def questions(self, split: str) -> tuple[Question, ...]:
    """What `measure` predicts of a split: the questions that have a right answer.

    Any order of another question's candidates is worth 0 in every metric.
    """
    return tuple(self.data.splits[split][i] for i in self._numbers(split))

  def _numbers(self, split: str) -> list[int]:
    """The positions of `questions` within the split; of all where none has a right answer."""
    if split not in self._answerable:
      every = self.data.splits[split]
      right = [i for i, q in enumerate(every) if any(c.label == 1 for c in q.candidates)]
      self._answerable[split] = right or list(range(len(every)))
    return self._answerable[split]

  def measure(self, variables: Any, split: str) -> list[predict.Evaluation]:
    """One evaluation a seed of the variables, by the score that ranks.

    Its scalars have what the system's other scores give of the metric that selects, so that the
    log shows which of them learns.
    """
    asked = self.questions(split)
    return [self._by_each_score(scores, split) for scores in self.predictor(variables, asked)]

  def _by_each_score(self, scores: Mapping[str, Any], split: str) -> predict.Evaluation:
    first, *others = (
      predict.evaluate(
        self._of_all(values, split), self.data, split, ties=self.config.evaluation.ties
      )
      for values in scores.values()
    )
    for name, other in zip([*scores][1:], others):
      if self.selector in other.metrics:
        first.scalars[f"{self.selector} by {name}"] = other.metrics[self.selector]["value"]
    return first

  def _of_all(self, scores: Sequence[np.ndarray], split: str) -> list[np.ndarray]:
    """The scores with zeros for the candidates of the questions that were not predicted."""
    every = [np.zeros(len(q.candidates), np.float32) for q in self.data.splits[split]]
    for number, its in zip(self._numbers(split), scores, strict=True):
      every[number] = its
    return every

  def record(
    self, workdir: epath.PathLike, variables: Any, split: str, outcomes: Sequence[results.Outcome]
  ) -> None:
    """Measures every score of a split, writes its files, adds it to the outcome of each seed."""
    for outcome, scores in zip(
      outcomes, self.predictor(variables, self.data.splits[split]), strict=True
    ):
      results.record(workdir, outcome, scores, self.data, split, self.config)
    _note(workdir, split, outcomes, self.config, self.data)


class Retrieve:
  """One pool is ranked for all queries, in the way that the system can.

  Raises:
    InputError: another policy for ties or metric than a pool has, a split without a question that has
      a right answer, a score that cannot be searched, or (of a model that does not encode sentences)
      no `data.ranking`.

  """

  def __init__(self, config: Any, data: Retrieval, predictor: Any):
    self.config, self.data = config, data
    self.selection = holdout.selection_split(config.data)
    self.selector = selector(config, data)
    self._require_queries()
    model = predictor.model
    way = (
      ScorePool if not model.has_parameters else SearchPool if model.encodes else RerankRetrieved
    )
    self.rank = way(config, data, predictor)

  def _require_queries(self) -> None:
    """Raises InputError where the pool of a split that will be measured has no query."""
    selecting = (self.selection,) if self.config.mode == "train" else ()
    for split in dict.fromkeys((*selecting, *self.config.evaluation.splits)):
      if split in self.data.pools and not self.data.pools[split].queries:
        other = "hold training questions out in its place (data.holdout=0.1)"
        other = other if split in selecting else "leave it out of evaluation.splits"
        raise InputError(
          f"{self.data.name}: no question of the split {split} has a right answer (label 1), so that "
          f"nothing can be measured on it; add some, or {other}"
        )

  def questions(self, split: str) -> tuple[Question, ...]:
    """What is predicted of a split (first)."""
    return self.rank.questions(split)

  def measure(self, variables: Any, split: str) -> list[predict.Evaluation]:
    """One evaluation a seed of the variables, by the score that ranks."""
    return [
      self._evaluation(next(iter(ranked.values())), split)
      for ranked in self.rank(variables, split, every_score=False)
    ]

  def record(
    self, workdir: epath.PathLike, variables: Any, split: str, outcomes: Sequence[results.Outcome]
  ) -> None:
    """Measures every score of a split, writes its files, adds it to the outcome of each seed."""
    rankings = self.rank(variables, split, every_score=True)
    for outcome, ranked in zip(outcomes, rankings, strict=True):
      for k, (score, ranking) in enumerate(ranked.items()):
        evaluation = self._evaluation(ranking, split)
        outcome.add(score, evaluation, primary=k == 0)
        folder = results.folder(
          workdir, split, outcome.seed, self.config.seeds, "" if k == 0 else score
        )
        retrieval.write(folder, evaluation, ranking, self.data.pools[split], tag=f"as2jax-{score}")
    _note(workdir, split, outcomes, self.config, self.data)

  def _evaluation(self, ranked: Ranked, split: str) -> predict.Evaluation:
    return retrieval.evaluation(
      ranked, self.data, split, often=self.config.evaluation.min_questions_per_answer
    )


class SearchPool:
  """Ranks a pool by the vectors of a system that encodes; its first score is the one that ranks."""

  def __init__(self, config: Any, data: Retrieval, predictor: predict.Predictor):
    self.config, self.data, model = config, data, predictor.model
    self.vectors = retrieval.Vectors(predictor, data)
    self.searcher = exact_search.Searcher(predictor.mesh, k=config.evaluation.depth)
    first = model.ranking_score
    if first not in exact_search.SIMILARITIES:
      raise InputError(
        f"model.score = {first!r}: a pool can be searched by "
        f"{', '.join(exact_search.SIMILARITIES)}; set --config.model.score"
      )
    others = [s for s in model.score_names if s in exact_search.SIMILARITIES and s != first]
    self.scores = (first, *others)

  def questions(self, split: str) -> tuple[Question, ...]:
    """The queries: they are encoded first."""
    return self.vectors.texts(split).queries

  def __call__(self, variables: Any, split: str, *, every_score: bool) -> list[dict[str, Ranked]]:
    """For each seed of the variables, {score: the ranking of the pool}."""
    pool, ties = self.data.pools[split], self.config.evaluation.ties
    return [
      {
        name: retrieval.by_vectors(self.searcher, queries, passages, pool, name, ties=ties)
        for name in (self.scores if every_score else self.scores[:1])
      }
      for queries, passages in zip(*self.vectors(variables, split), strict=True)
    ]


class RerankRetrieved:
  """Ranks again what another run retrieved from a pool (`data.ranking`), pair by pair."""

  def __init__(self, config: Any, data: Retrieval, predictor: predict.Predictor):
    self.config, self.data, self.predictor = config, data, predictor
    self._retrieved: dict[str, retrieve_rerank.Retrieved] = {}
    selecting = (holdout.selection_split(config.data),) if config.mode == "train" else ()
    for split in dict.fromkeys((*selecting, *config.evaluation.splits)):
      self._of(split)  # what is wrong with the files is found before anything is trained

  def questions(self, split: str) -> tuple[Question, ...]:
    """The queries with the retrieved passages as their candidates."""
    return self._of(split).questions

  def __call__(self, variables: Any, split: str, *, every_score: bool) -> list[dict[str, Ranked]]:
    """For each seed of the variables, {score: the ranking of what was retrieved}."""
    del every_score  # there is one
    retrieved, pool, ties = self._of(split), self.data.pools[split], self.config.evaluation.ties
    rankings = []
    for scores in self.predictor(variables, retrieved.questions):
      name, values = next(iter(scores.items()))
      rankings.append({name: retrieve_rerank.reranked(values, retrieved, pool, ties=ties)})
    return rankings

  def _of(self, split: str) -> retrieve_rerank.Retrieved:
    if split not in self._retrieved:
      self._retrieved[split] = retrieve_rerank.retrieved(
        self.config.data.ranking, self.data.pools[split], split, depth=self.config.evaluation.depth
      )
    return self._retrieved[split]


class ScorePool:
  """Ranks a pool by the scores that a ranker without parameters gives all of it."""

  def __init__(self, config: Any, data: Retrieval, ranker: Any):
    self.config, self.data, self.ranker = config, data, ranker

  def questions(self, split: str) -> tuple[Question, ...]:
    """None: nothing is predicted in batches."""
    del split
    return ()

  def __call__(self, variables: Any, split: str, *, every_score: bool) -> list[dict[str, Ranked]]:
    """{score: the ranking of the pool}, as of one seed."""
    del variables, every_score
    pool, evaluation = self.data.pools[split], self.config.evaluation
    score = self.ranker.scorer.over_pool([passage.text for passage in pool.passages])
    ranked = retrieval.by_scores(score, pool, depth=evaluation.depth, ties=evaluation.ties)
    return [{self.ranker.model.ranking_score: ranked}]


def _note(workdir, split, outcomes, config, data) -> None:
  seeds = [outcome.seed for outcome in outcomes]
  results.note_evaluation(workdir, split, seeds, data.name, config.mode)


def make(config: Any, data: Any, predictor: Any) -> Rerank | Retrieve:
  """The task that `evaluation.task` names.

  Args:
    predictor: a `predict.Predictor`, or a `parameter_free.FittedRanker`.

  """
  by_name = {"rerank": Rerank, "retrieve": Retrieve}
  return by_name[config.evaluation.task](config, data, predictor)


def selector(config: Any, data: Any) -> str:
  """The metric over a pool that chooses the best checkpoint.

  Raises:
    InputError: a metric or a policy for ties that a pool does not have.

  """
  if config.select not in retrieval_metrics.METRICS:
    raise InputError(
      f"select = {config.select!r}: over a pool use one of {', '.join(retrieval_metrics.METRICS)}"
    )
  if config.evaluation.ties not in retrieval_metrics.TIES:
    raise InputError(
      f"evaluation.ties = {config.evaluation.ties!r}: over a pool use one of "
      f"{', '.join(retrieval_metrics.TIES)}"
    )
  return f"{config.select}[{data.name}-gold/{holdout.selection_split(config.data)}]"
