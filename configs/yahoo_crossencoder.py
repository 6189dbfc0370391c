"""A fine-tuned cross-encoder on YahooCQA (CETE section 4)."""

from as2jax.config import recipes

get_config = recipes.job("crossencoder", "yahoocqa")
