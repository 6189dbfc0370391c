"""Untrained baselines on WikiQA (ASBERT, table 3); for the arguments see configs/baselines.py."""

from configs import base, baselines


def get_config(argument="mean"):
  config = base.get_config()
  config.data.name = "wikiqa"
  return baselines.apply(config, argument)
