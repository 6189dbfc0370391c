"""Untrained baselines on WikiQA (ASBERT, table 3); words as in `recipes.BASELINES`."""

from as2jax.config import recipes

get_config = recipes.job(recipes.baseline, "wikiqa", default="mean")
