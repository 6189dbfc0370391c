"""One's own files (data.train, .dev, .test) with a recipe: own:triplet,minilm, own:crossencoder, own:bm25."""

from as2jax.config import recipes


def get_config(argument="triplet"):
  return recipes.own(argument)
