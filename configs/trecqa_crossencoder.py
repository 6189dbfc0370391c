"""A fine-tuned cross-encoder on TrecQA, TRAIN-ALL (CETE section 4).

Arguments, joined by commas: those of as2jax/config/presets.py (`minilm`, `roberta`, `xlnet` …).
"""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  presets.crossencoder(config)
  config.data.name = "trecqa_all"
  config.data.rules = ("lowercase", "alphanumeric")  # CETE's code
  return presets.apply(config, argument)
