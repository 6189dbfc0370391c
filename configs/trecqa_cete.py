"""CETE's feature-based ranker on TrecQA, TRAIN-ALL; words as in `recipes.cete`."""

from as2jax.config import base, recipes


def get_config(argument=None):
  config = base.get_config()
  config.data.name, config.data.rules = "trecqa_all", ("lowercase", "alphanumeric")  # CETE's code
  return recipes.cete(config, argument)
