"""ASBERT's triplet network on WikiQA (Shonibare 2021, table 3)."""

from as2jax.config import recipes

get_config = recipes.job("triplet", "wikiqa")
