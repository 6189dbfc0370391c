"""A fine-tuned cross-encoder on WikiQA (CETE, table 4), under its code's text rules."""

from as2jax.config import recipes


def get_config(argument=None):
  return recipes.job("crossencoder", argument, "wikiqa", ("alphanumeric",))
