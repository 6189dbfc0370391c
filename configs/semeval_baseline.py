"""Untrained baselines on SemEval CQA, subtask A; the year: --config.data.name=semeval2016; words as in `recipes.BASELINES`."""

from as2jax.config import base, recipes


def get_config(argument="mean"):
  config = base.get_config()
  config.data.name = "semeval2015"
  return recipes.baseline(config, argument)
