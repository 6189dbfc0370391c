"""Dual-GRUs on SQuAD 1.1 (Yu et al. 2020, table 2); for the arguments see configs/cross_vae.py."""

from configs import base, cross_vae, presets


def get_config(argument=None):
  config = base.get_config()
  presets.squad(config)
  return cross_vae.apply(config, "none", argument)
