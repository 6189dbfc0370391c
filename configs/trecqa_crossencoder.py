"""A fine-tuned cross-encoder on TrecQA, TRAIN-ALL (CETE section 4), under its code's text rules."""

from as2jax.config import recipes


def get_config(argument=None):
  return recipes.job("crossencoder", argument, "trecqa_all", ("lowercase", "alphanumeric"))
