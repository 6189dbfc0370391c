"""CETE's feature-based ranker on WikiQA (tables 3 and 4); words as in `recipes.cete`."""

from as2jax.config import base, recipes


def get_config(argument=None):
  config = base.get_config()
  config.data.name, config.data.rules = "wikiqa", ("alphanumeric",)  # CETE's code
  return recipes.cete(config, argument)
