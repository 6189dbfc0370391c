"""Untrained baselines on WikiQA (ASBERT, table 3); for the arguments see as2jax/config/baselines.py."""

from as2jax.config import base, baselines


def get_config(argument="mean"):
  config = base.get_config()
  config.data.name = "wikiqa"
  return baselines.apply(config, argument)
