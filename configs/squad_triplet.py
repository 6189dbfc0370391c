"""ASBERT's triplets on SQuAD's pool, negatives from the right sentence's paragraph; also `squad_44`, `squad_parts`."""

from as2jax.config import base, recipes, words


def get_config(argument=None):
  config = base.get_config()
  recipes.triplet(config)
  recipes.squad(config)
  config.data.negatives = "paragraph"
  config.epochs = 3
  return words.apply(config, argument)
