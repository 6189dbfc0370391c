"""ASBERT's siamese network on TrecQA, the small TRAIN (Shonibare 2021, tables 2 and 4)."""

from as2jax.config import recipes


def get_config(argument=None):
  return recipes.job("siamese", argument, "trecqa", ("ptb",))
