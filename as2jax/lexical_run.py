"""Rankers without parameters (word overlap, IDF overlap, BM25) as runs of their own."""

from typing import Any

from etils import epath

from as2jax import results
from as2jax.data import configured
from as2jax.models import lexical


def run(config: Any, workdir: epath.PathLike) -> dict:
  """Ranks dev and the reported splits, writes the same files as a trained run."""
  data = configured.load(config.data)
  configured.require(data, ("train", "dev", *config.evaluation.splits))
  scorer = lexical.LEXICAL[config.model.name](data.splits["train"])
  outcome = results.Outcome(0, 0, 0, 0.0, 0)
  for split in dict.fromkeys(("dev", *config.evaluation.splits)):
    scores = {config.model.name: scorer(data.splits[split])}
    results.record(workdir, outcome, scores, data, split, config)
  outcome.best_value = outcome.metrics[f"{config.select}[{data.name}-clean/dev]"]["value"]
  return results.write(workdir, config, results.data_facts(data, config.data), {}, [outcome], {})
