"""CETE's feature-based ranker on YahooCQA; for the arguments see configs/cete.py."""

from configs import base, cete


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "yahoocqa"
  return cete.apply(config, argument)
