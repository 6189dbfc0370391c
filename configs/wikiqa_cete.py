"""CETE's feature-based ranker on WikiQA (tables 3 and 4); words as in `recipes.cete`."""

from as2jax.config import recipes

get_config = recipes.job(recipes.cete, "wikiqa", ("alphanumeric",))  # CETE's code
