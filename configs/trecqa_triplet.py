"""ASBERT's triplet network on TrecQA, the small TRAIN (Shonibare 2021, tables 2 and 4).

Arguments, joined by commas: those of as2jax/config/presets.py (`minilm`, `roberta`, `grouped` …).
"""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  presets.triplet(config)
  presets.trecqa(config)
  return presets.apply(config, argument)
