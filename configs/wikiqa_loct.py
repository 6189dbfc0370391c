"""LOCT on WikiQA (Lauriola and Moschitti 2021; CASSIE, table 3), on clean dev and test together."""

from as2jax.config import recipes

get_config = recipes.job("loct", "wikiqa")
