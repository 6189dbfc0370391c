"""Untrained baselines on TrecQA (ASBERT, table 4); words as in `recipes.BASELINES`."""

from as2jax.config import base, recipes


def get_config(argument="mean"):
  config = base.get_config()
  config.data.name, config.data.rules = "trecqa", ("ptb",)
  return recipes.baseline(config, argument)
