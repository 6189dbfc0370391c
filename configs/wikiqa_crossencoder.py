"""A fine-tuned cross-encoder on WikiQA (CETE, table 4), under its code's text rules."""

from as2jax.config import recipes

get_config = recipes.job("crossencoder", "wikiqa", ("alphanumeric",))
