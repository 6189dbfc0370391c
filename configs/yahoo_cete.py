"""CETE's feature-based ranker on YahooCQA; for the arguments see as2jax/config/cete.py."""

from as2jax.config import base, cete


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "yahoocqa"
  return cete.apply(config, argument)
