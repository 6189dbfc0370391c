"""Rankers without parameters (word overlap, IDF overlap, BM25) as runs of their own."""

from typing import Any

from etils import epath

from as2jax.data.datasets import holdout, load
from as2jax.data.datasets.retrieval import Retrieval
from as2jax.evaluation import results, retrieval, tasks
from as2jax.evaluation.predict import check_finite
from as2jax.models import lexical, lexical_pool
from as2jax.runtime.errors import InputError


def run(config: Any, workdir: epath.PathLike) -> dict:
  """Ranks the split that selects and the reported ones, writes the same files as a trained run."""
  if config.warm_start.run:
    raise InputError(
      f"warm_start.run = {config.warm_start.run}: {config.model.name} has no "
      "parameters to begin with; set it to ''"
    )
  data = load.load(config.data, config.evaluation.task)
  splits = dict.fromkeys((holdout.selection_split(config.data), *config.evaluation.splits))
  outcome, selector = _rank(config, workdir, data, tuple(splits))
  outcome.best_value = outcome.metrics[selector]["value"]
  return _write(config, workdir, data, outcome, "results.json")


def evaluate(config: Any, workdir: epath.PathLike) -> dict:
  """Ranks the reported splits alone and writes `evaluation.json`, as `inference.apply` does.

  What a ranker counts it counts in the training questions of the config's data, which are the
  run's where the config is.
  """
  data = load.load(config.data, config.evaluation.task)
  outcome, _ = _rank(config, workdir, data, tuple(config.evaluation.splits))
  return _write(config, workdir, data, outcome, "evaluation.json")


def _rank(
  config: Any, workdir: epath.PathLike, data: Any, splits: tuple[str, ...]
) -> tuple[results.Outcome, str]:
  """Ranks the splits and writes their files; the outcome, and the metric that selects."""
  load.require(data, ("train", *splits))
  rank = _pool if config.evaluation.task == "retrieve" else _rerank
  outcome = results.Outcome(0, 0, 0, 0.0, 0)
  return outcome, rank(config, workdir, data, outcome, splits)


def _rerank(
  config: Any, workdir: epath.PathLike, data: Any, outcome: results.Outcome, splits: tuple[str, ...]
) -> str:
  scorer = lexical.LEXICAL[config.model.name](data.splits["train"])
  for split in splits:
    scores = {config.model.name: scorer(data.splits[split])}
    check_finite(scores[config.model.name], data.splits[split], config.model.name)
    results.record(workdir, outcome, scores, data, split, config)
  return f"{config.select}[{data.name}-clean/{holdout.selection_split(config.data)}]"


def _pool(
  config: Any,
  workdir: epath.PathLike,
  data: Retrieval,
  outcome: results.Outcome,
  splits: tuple[str, ...],
) -> str:
  selector = tasks.selector(config, data)
  for split in splits:
    pool = data.pools[split]
    score = lexical_pool.scorer(
      config.model.name, data.splits["train"], [passage.text for passage in pool.passages]
    )
    ranked = retrieval.by_scores(
      score, pool, depth=config.evaluation.depth, ties=config.evaluation.ties
    )
    tasks.record(workdir, outcome, {config.model.name: ranked}, data, split, config)
  return selector


def _write(
  config: Any, workdir: epath.PathLike, data: Any, outcome: results.Outcome, name: str
) -> dict:
  facts = results.data_facts(data, config.data)
  return results.write(workdir, config, facts, {}, [outcome], {}, name=name)
