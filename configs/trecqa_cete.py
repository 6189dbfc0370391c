"""CETE's feature-based ranker on TrecQA, TRAIN-ALL; for the arguments see configs/cete.py."""

from configs import base, cete


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "trecqa_all"
  config.data.rules = ("lowercase", "alphanumeric")  # CETE's code
  return cete.apply(config, argument)
