"""Untrained baselines on TrecQA (ASBERT, table 4); for the arguments see as2jax/config/baselines.py."""

from as2jax.config import base, baselines, presets


def get_config(argument="mean"):
  config = base.get_config()
  presets.trecqa(config)
  return baselines.apply(config, argument)
