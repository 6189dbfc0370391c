"""CETE's feature-based ranker on SemEval CQA, subtask A; for the arguments see as2jax/config/cete.py.

A word names the year: semeval2015 (the default), semeval2016, semeval2017.
"""

from as2jax.config import base, cete, presets


def get_config(argument=None):
  config = base.get_config()
  return cete.apply(config, presets.cete_semeval(config, argument))
