"""The two kinds of evaluation: `rerank` a question's own candidates, or search a `pool`.

Both offer the same: the split (`selection`) and the metric (`selector`) that select, what to predict, measuring a split, recording it.
"""

from collections.abc import Sequence
from typing import Any

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


class Rerank:
  """Every question ranks its own candidates."""

  def __init__(self, config: Any, data: Any, predictor: predict.Predictor):
    self.config, self.data, self.predictor = config, data, predictor
    self.selection = holdout.selection_split(config.data)
    self.selector = f"{config.select}[{data.name}-clean/{self.selection}]"

  def questions(self, split: str) -> tuple[Question, ...]:
    """What is predicted of a split (first)."""
    return self.data.splits[split]

  def measure(self, variables: Any, split: str) -> list[predict.Evaluation]:
    """One evaluation a seed of the variables, by the score that ranks."""
    return [
      predict.evaluate(
        next(iter(scores.values())), self.data, split, ties=self.config.evaluation.ties
      )
      for scores in self.predictor(variables, self.data.splits[split])
    ]

  def record(
    self, workdir: epath.PathLike, variables: Any, split: str, outcomes: Sequence[results.Outcome]
  ) -> None:
    """Measures every score of a split, writes its files, adds it to the outcome of each seed."""
    for outcome, scores in zip(
      outcomes, self.predictor(variables, self.data.splits[split]), strict=True
    ):
      results.record(workdir, outcome, scores, self.data, split, self.config)


class Retrieve:
  """One pool is ranked for all queries, by vectors or by re-ranking what a run retrieved.

  Raises:
    InputError: another policy for ties or metric than a pool has, a score that cannot be searched,
      or (of a model that does not encode sentences) no `data.ranking`.

  """

  def __init__(self, config: Any, data: Retrieval, predictor: predict.Predictor):
    self.config, self.data, self.predictor = config, data, predictor
    self.selection = holdout.selection_split(config.data)
    self.selector = selector(config, data)
    self.vectors = retrieval.Vectors(predictor, data)
    self.searcher = exact_search.Searcher(predictor.mesh, k=config.evaluation.depth)
    self._retrieved: dict[str, retrieve_rerank.Retrieved] = {}
    model = predictor.components.model
    self.encodes = model.encodes
    self.scores: tuple[str, ...] = ()
    if not self.encodes:
      selecting = (self.selection,) if config.mode == "train" else ()
      for split in dict.fromkeys((*selecting, *config.evaluation.splits)):
        self._found(split)  # what is wrong with the files is found before anything is trained
    else:
      if model.score not in exact_search.SIMILARITIES:
        raise InputError(
          f"model.score = {model.score!r}: a pool can be searched by "
          f"{', '.join(exact_search.SIMILARITIES)}; set --config.model.score"
        )
      others = [
        name
        for name in model.score_names
        if name in exact_search.SIMILARITIES and name != model.score
      ]
      self.scores = (model.score, *others)

  def questions(self, split: str) -> tuple[Question, ...]:
    """What is predicted of a split (first)."""
    if self.encodes:
      return self.vectors.texts(split).queries
    return self._found(split).questions

  def measure(self, variables: Any, split: str) -> list[predict.Evaluation]:
    """One evaluation a seed of the variables, by the score that ranks."""
    return [
      self._evaluation(next(iter(ranked.values())), split)
      for ranked in self.rank(variables, split, self.scores[:1])
    ]

  def record(
    self, workdir: epath.PathLike, variables: Any, split: str, outcomes: Sequence[results.Outcome]
  ) -> None:
    """Measures every score of a split, writes its files, adds it to the outcome of each seed."""
    for outcome, ranked in zip(outcomes, self.rank(variables, split, self.scores), strict=True):
      record(workdir, outcome, ranked, self.data, split, self.config)

  def rank(self, variables: Any, split: str, scores: Sequence[str]) -> list[dict[str, Ranked]]:
    """For each seed of the variables, {score: the ranking of the pool}."""
    pool, ties = self.data.pools[split], self.config.evaluation.ties
    if not self.encodes:
      found = self._found(split)
      return [
        {
          name: retrieve_rerank.reranked(values, found, pool, ties=ties)
          for name, values in list(its.items())[:1]
        }
        for its in self.predictor(variables, found.questions)
      ]
    return [
      {
        name: retrieval.by_vectors(self.searcher, queries, passages, pool, name, ties=ties)
        for name in scores
      }
      for queries, passages in zip(*self.vectors(variables, split), strict=True)
    ]

  def _found(self, split: str) -> retrieve_rerank.Retrieved:
    if split not in self._retrieved:
      self._retrieved[split] = retrieve_rerank.retrieved(
        self.config.data.ranking, self.data.pools[split], split, depth=self.config.evaluation.depth
      )
    return self._retrieved[split]

  def _evaluation(self, ranked: Ranked, split: str) -> predict.Evaluation:
    return retrieval.evaluation(
      ranked, self.data, split, often=self.config.evaluation.min_questions_per_answer
    )


def make(config: Any, data: Any, predictor: predict.Predictor) -> Rerank | Retrieve:
  """The kind that `evaluation.task` names."""
  kinds = {"rerank": Rerank, "retrieve": Retrieve}
  return kinds[config.evaluation.task](config, data, predictor)


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


def record(
  workdir: epath.PathLike,
  outcome: results.Outcome,
  ranked: dict[str, Ranked],
  data: Retrieval,
  split: str,
  config: Any,
) -> None:
  """Measures every ranking of a pool (the first ranks), writes its files, adds it to `outcome`."""
  for k, (name, its) in enumerate(ranked.items()):
    found = retrieval.evaluation(its, data, split, often=config.evaluation.min_questions_per_answer)
    outcome.add(name, found, primary=k == 0)
    folder = results.folder(workdir, split, outcome.seed, config.seeds, "" if k == 0 else name)
    retrieval.write(folder, found, its, data.pools[split], tag=f"as2jax-{name}")
