"""Untrained baselines on SemEval CQA, subtask A; for the arguments see as2jax/config/baselines.py.

The year is the data set's name: --config.data.name=semeval2016.
"""

from as2jax.config import base, baselines, presets


def get_config(argument="mean"):
  config = base.get_config()
  presets.semeval(config)
  return baselines.apply(config, argument)
