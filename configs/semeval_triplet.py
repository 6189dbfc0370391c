"""ASBERT's triplet network on SemEval CQA, subtask A; the paper has no such row.

Arguments as everywhere. The year is the data set's name: --config.data.name=semeval2016.
"""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  presets.triplet(config)
  presets.semeval(config)
  return presets.apply(config, argument)
