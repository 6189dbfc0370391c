"""CETE's feature-based ranker on WikiQA (tables 3 and 4); for the arguments see as2jax/config/cete.py."""

from as2jax.config import base, cete


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "wikiqa"
  config.data.rules = ("alphanumeric",)  # CETE's code
  return cete.apply(config, argument)
