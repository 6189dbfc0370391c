"""A fine-tuned cross-encoder on SemEval CQA, subtask A (CETE section 4).

Arguments as everywhere. The year is the data set's name: --config.data.name=semeval2016.
"""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  presets.crossencoder(config)
  presets.semeval(config)
  config.data.rules = ("lowercase", "alphanumeric")  # as its authors' files
  return presets.apply(config, argument)
