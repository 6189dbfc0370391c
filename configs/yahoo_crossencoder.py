"""A fine-tuned cross-encoder on YahooCQA (CETE section 4)."""

from as2jax.config import recipes


def get_config(argument=None):
  return recipes.job("crossencoder", argument, "yahoocqa")
