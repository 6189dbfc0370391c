"""ASBERT's siamese network on WikiQA (Shonibare 2021, table 3)."""

from as2jax.config import recipes


def get_config(argument=None):
  return recipes.job("siamese", argument, "wikiqa")
