"""Dual-VAEs on SQuAD 1.1 (Yu et al. 2020, table 2); words as in `recipes.cross_vae`."""

from as2jax.config import recipes

get_config = recipes.job(recipes.dual_vae, "squad")
