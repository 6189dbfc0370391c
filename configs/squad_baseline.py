"""Untrained baselines on SQuAD's pool (Cross-VAE, table 2); also `squad_44`, `squad_parts`."""

from as2jax.config import base, recipes


def get_config(argument="mean"):
  config = base.get_config()
  recipes.squad(config)
  return recipes.baseline(config, argument)
