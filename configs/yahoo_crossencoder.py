"""A fine-tuned cross-encoder on YahooCQA (CETE section 4)."""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "yahoocqa"
  presets.crossencoder(config)
  return presets.apply(config, argument)
