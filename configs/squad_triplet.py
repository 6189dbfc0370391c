"""A bi-encoder on SQuAD's pool: ASBERT's triplets, negatives from the right sentence's paragraph.

Also `squad_44` and `squad_parts`: other parts of SQuAD.
"""

from as2jax.config import base, recipes, words


def get_config(argument=None):
  config = base.get_config()
  recipes.triplet(config)
  recipes.squad(config)
  config.data.negatives = "paragraph"
  config.epochs = 3
  return words.apply(config, argument)
