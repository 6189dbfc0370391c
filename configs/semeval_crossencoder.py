"""A fine-tuned cross-encoder on SemEval CQA, subtask A (CETE section 4).

Arguments as everywhere, and a word for the year: semeval2015 (the default), semeval2016, semeval2017.
"""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  presets.crossencoder(config)
  return presets.apply(config, presets.cete_semeval(config, argument))
