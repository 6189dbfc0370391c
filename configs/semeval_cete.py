"""CETE's feature-based ranker on SemEval CQA, subtask A; for the arguments see as2jax/config/cete.py.

The year is the data set's name: --config.data.name=semeval2016.
"""

from as2jax.config import base, cete, presets


def get_config(argument=None):
  config = base.get_config()
  presets.semeval(config)
  config.data.rules = ("lowercase", "alphanumeric")  # as its authors' files
  return cete.apply(config, argument)
