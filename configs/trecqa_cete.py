"""CETE's feature-based ranker on TrecQA, TRAIN-ALL; words as in `recipes.cete`."""

from as2jax.config import recipes

get_config = recipes.job(recipes.cete, "trecqa_all", ("lowercase", "alphanumeric"))  # CETE's code
