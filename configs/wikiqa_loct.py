"""LOCT on WikiQA (Lauriola and Moschitti 2021; CASSIE, table 3), on clean dev and test together.

Arguments, joined by commas: those of as2jax/config/presets.py (`sample`, `minilm` …).
"""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "wikiqa"
  presets.loct(config)
  return presets.apply(config, argument)
