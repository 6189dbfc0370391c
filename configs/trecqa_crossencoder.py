"""A fine-tuned cross-encoder on TrecQA, TRAIN-ALL (CETE section 4), under its code's text rules."""

from as2jax.config import recipes

get_config = recipes.job("crossencoder", "trecqa_all", ("lowercase", "alphanumeric"))
