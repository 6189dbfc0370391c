"""CETE's feature-based ranker on YahooCQA; words as in `recipes.cete`."""

from as2jax.config import recipes

get_config = recipes.job(recipes.cete, "yahoocqa")
