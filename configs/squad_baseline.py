"""Untrained baselines on SQuAD's pool (Cross-VAE, table 2); arguments as in as2jax/config/baselines.py.

Also `squad_44` and `squad_parts`: other parts of SQuAD, for who lacks its training file.
"""

from as2jax.config import base, baselines, presets


def get_config(argument="mean"):
  config = base.get_config()
  presets.squad(config)
  words = argument.split(",")
  presets.apply_to_pool(config, ",".join(word for word in words if word in presets.POOLS))
  return baselines.apply(config, ",".join(word for word in words if word not in presets.POOLS))
