"""Rankers without parameters (word overlap, IDF overlap, BM25) as runs of their own."""

from typing import Any

from etils import epath

from as2jax import pool_evaluation, protocols, results
from as2jax.data import configured, holdout
from as2jax.data.retrieval import Retrieval
from as2jax.errors import InputError
from as2jax.evaluate import check_finite
from as2jax.models import lexical, lexical_pool


def run(config: Any, workdir: epath.PathLike) -> dict:
  """Ranks the split that selects and the reported ones, writes the same files as a trained run."""
  if config.init_from.run:
    raise InputError(f"init_from.run = {config.init_from.run}: {config.model.name} has no "
                     "parameters to begin with; set it to ''")
  data = configured.load(config.data, config.evaluation.kind)
  splits = dict.fromkeys((holdout.selection_split(config.data), *config.evaluation.splits))
  outcome, selector = _rank(config, workdir, data, tuple(splits))
  outcome.best_value = outcome.metrics[selector]["value"]
  return _write(config, workdir, data, outcome, "results.json")


def evaluate(config: Any, workdir: epath.PathLike) -> dict:
  """Ranks the reported splits alone and writes `evaluation.json`, as `rank.evaluate_run` does.

  What a ranker counts it counts in the training questions of the config's data, which are the
  run's where the config is.
  """
  data = configured.load(config.data, config.evaluation.kind)
  outcome, _ = _rank(config, workdir, data, tuple(config.evaluation.splits))
  return _write(config, workdir, data, outcome, "evaluation.json")


def _rank(config: Any, workdir: epath.PathLike, data: Any, splits: tuple[str, ...]
          ) -> tuple[results.Outcome, str]:
  """Ranks the splits and writes their files; the outcome, and the metric that selects."""
  configured.require(data, ("train", *splits))
  rank = _pool if config.evaluation.kind == "pool" else _rerank
  outcome = results.Outcome(0, 0, 0, 0.0, 0)
  return outcome, rank(config, workdir, data, outcome, splits)


def _rerank(config: Any, workdir: epath.PathLike, data: Any, outcome: results.Outcome,
            splits: tuple[str, ...]) -> str:
  scorer = lexical.LEXICAL[config.model.name](data.splits["train"])
  for split in splits:
    scores = {config.model.name: scorer(data.splits[split])}
    check_finite(scores[config.model.name], data.splits[split], config.model.name)
    results.record(workdir, outcome, scores, data, split, config)
  return f"{config.select}[{data.name}-clean/{holdout.selection_split(config.data)}]"


def _pool(config: Any, workdir: epath.PathLike, data: Retrieval, outcome: results.Outcome,
          splits: tuple[str, ...]) -> str:
  selector = protocols.selector(config, data)
  for split in splits:
    pool = data.pools[split]
    score = lexical_pool.scorer(config.model.name, data.splits["train"],
                                [passage.text for passage in pool.passages])
    ranked = pool_evaluation.by_scores(score, pool, depth=config.evaluation.depth,
                                       ties=config.evaluation.ties)
    protocols.record(workdir, outcome, {config.model.name: ranked}, data, split, config)
  return selector


def _write(config: Any, workdir: epath.PathLike, data: Any, outcome: results.Outcome,
           name: str) -> dict:
  facts = results.data_facts(data, config.data)
  return results.write(workdir, config, facts, {}, [outcome], {}, name=name)
