"""A fine-tuned cross-encoder on WikiQA (CETE, table 4).

Arguments, joined by commas: `sample` (embedded data, small encoder), `minilm` (small encoder),
`grouped` (whole questions a batch).
"""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "wikiqa"
  presets.crossencoder(config)
  config.data.rules = ("alphanumeric",)  # CETE's code
  return presets.apply(config, argument)
