"""Dual-GRUs on SQuAD 1.1 (Yu et al. 2020, table 2); words as in `recipes.cross_vae`."""

from as2jax.config import base, recipes


def get_config(argument=None):
  config = base.get_config()
  recipes.squad(config)
  return recipes.cross_vae(config, "none", argument)
