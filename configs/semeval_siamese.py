"""ASBERT's siamese network on SemEval CQA, subtask A (no row of the paper); the year: --config.data.name=semeval2016."""

from as2jax.config import recipes

get_config = recipes.job("siamese", "semeval2015")
