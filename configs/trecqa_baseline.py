"""Untrained baselines on TrecQA (ASBERT, table 4); words as in `recipes.BASELINES`."""

from as2jax.config import recipes

get_config = recipes.job(recipes.baseline, "trecqa", ("ptb",), "mean")
