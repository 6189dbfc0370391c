"""Untrained baselines on SemEval CQA, subtask A; the year: --config.data.name=semeval2016; words as in `recipes.BASELINES`."""

from as2jax.config import recipes

get_config = recipes.job(recipes.baseline, "semeval2015", default="mean")
