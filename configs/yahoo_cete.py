"""CETE's feature-based ranker on YahooCQA; words as in `recipes.cete`."""

from as2jax.config import base, recipes


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "yahoocqa"
  return recipes.cete(config, argument)
