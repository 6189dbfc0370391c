"""Rankers without parameters (word overlap, IDF overlap, BM25) as runs of their own."""

from typing import Any

from etils import epath

from as2jax import results
from as2jax.data import configured, holdout
from as2jax.errors import InputError
from as2jax.models import lexical


def run(config: Any, workdir: epath.PathLike) -> dict:
  """Ranks the split that selects and the reported ones, writes the same files as a trained run."""
  if config.init_from.run:
    raise InputError(f"init_from.run = {config.init_from.run}: {config.model.name} has no "
                     "parameters to begin with; set it to ''")
  data = configured.load(config.data)
  selection = holdout.selection_split(config.data)
  configured.require(data, ("train", selection, *config.evaluation.splits))
  scorer = lexical.LEXICAL[config.model.name](data.splits["train"])
  outcome = results.Outcome(0, 0, 0, 0.0, 0)
  for split in dict.fromkeys((selection, *config.evaluation.splits)):
    scores = {config.model.name: scorer(data.splits[split])}
    results.record(workdir, outcome, scores, data, split, config)
  outcome.best_value = outcome.metrics[f"{config.select}[{data.name}-clean/{selection}]"]["value"]
  return results.write(workdir, config, results.data_facts(data, config.data), {}, [outcome], {})
