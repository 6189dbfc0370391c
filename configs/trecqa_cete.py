"""CETE's feature-based ranker on TrecQA, TRAIN-ALL; for the arguments see as2jax/config/cete.py."""

from as2jax.config import base, cete


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "trecqa_all"
  config.data.rules = ("lowercase", "alphanumeric")  # CETE's code
  return cete.apply(config, argument)
