"""Rankers without parameters (word overlap, IDF overlap, BM25) as runs of their own."""

from typing import Any

from etils import epath

from as2jax import pool_evaluation, protocols, results
from as2jax.data import configured, holdout
from as2jax.data.retrieval import Retrieval
from as2jax.errors import InputError
from as2jax.models import lexical, lexical_pool


def run(config: Any, workdir: epath.PathLike) -> dict:
  """Ranks the split that selects and the reported ones, writes the same files as a trained run."""
  if config.init_from.run:
    raise InputError(f"init_from.run = {config.init_from.run}: {config.model.name} has no "
                     "parameters to begin with; set it to ''")
  data = configured.load(config.data, config.evaluation.kind)
  configured.require(data, ("train", *_splits(config)))
  rank = _pool if config.evaluation.kind == "pool" else _rerank
  outcome = results.Outcome(0, 0, 0, 0.0, 0)
  selector = rank(config, workdir, data, outcome)
  outcome.best_value = outcome.metrics[selector]["value"]
  return results.write(workdir, config, results.data_facts(data, config.data), {}, [outcome], {})


def _splits(config: Any) -> list[str]:
  return list(dict.fromkeys((holdout.selection_split(config.data), *config.evaluation.splits)))


def _rerank(config: Any, workdir: epath.PathLike, data: Any, outcome: results.Outcome) -> str:
  scorer = lexical.LEXICAL[config.model.name](data.splits["train"])
  for split in _splits(config):
    scores = {config.model.name: scorer(data.splits[split])}
    results.record(workdir, outcome, scores, data, split, config)
  return f"{config.select}[{data.name}-clean/{holdout.selection_split(config.data)}]"


def _pool(config: Any, workdir: epath.PathLike, data: Retrieval, outcome: results.Outcome) -> str:
  selector = protocols.selector(config, data)
  for split in _splits(config):
    pool = data.pools[split]
    score = lexical_pool.scorer(config.model.name, data.splits["train"],
                                [passage.text for passage in pool.passages])
    ranked = pool_evaluation.by_scores(score, pool, depth=config.evaluation.depth,
                                       ties=config.evaluation.ties)
    protocols.record(workdir, outcome, {config.model.name: ranked}, data, split, config)
  return selector
