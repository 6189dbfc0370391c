"""Untrained baselines on WikiQA (ASBERT, table 3); words as in `recipes.BASELINES`."""

from as2jax.config import base, recipes


def get_config(argument="mean"):
  config = base.get_config()
  config.data.name = "wikiqa"
  return recipes.baseline(config, argument)
