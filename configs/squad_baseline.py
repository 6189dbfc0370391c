"""Untrained baselines on SQuAD's pool (Cross-VAE, table 2); also `squad_44`, `squad_parts`."""

from as2jax.config import base, recipes, words


def get_config(argument="mean"):
  config = base.get_config()
  recipes.squad(config)
  named = words.split(argument)
  words.apply_to_pool(config, ",".join(word for word in named if word in words.POOLS))
  return recipes.baseline(config, ",".join(word for word in named if word not in words.POOLS))
