"""Cross-VAEs on SQuAD 1.1 (Yu et al. 2020, table 2); for the arguments see as2jax/config/cross_vae.py."""

from as2jax.config import base, cross_vae, presets


def get_config(argument=None):
  config = base.get_config()
  presets.squad(config)
  return cross_vae.apply(config, "cross", argument)
