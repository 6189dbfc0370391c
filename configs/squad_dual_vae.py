"""Dual-VAEs on SQuAD 1.1 sentence retrieval (Yu et al. 2020, table 2); arguments: configs/cross_vae.py."""

from configs import base, cross_vae


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "squad_44"
  return cross_vae.apply(config, "dual", argument)
