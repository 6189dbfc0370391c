"""ASBERT's siamese network on WikiQA (Shonibare 2021, table 3).

Arguments, joined by commas: `sample` (embedded data, small encoder), `minilm` (small encoder),
`grouped` (whole questions a batch).
"""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "wikiqa"
  presets.siamese(config)
  return presets.apply(config, argument)
