"""Untrained baselines on TrecQA (ASBERT, table 4); for the arguments see configs/baselines.py."""

from configs import base, baselines, presets


def get_config(argument="mean"):
  config = base.get_config()
  presets.trecqa(config)
  return baselines.apply(config, argument)
