"""The second stage of TANDA (Garg et al. 2020; CASSIE, section 4.1): adapts a ranker to WikiQA.

Name the finished first stage (configs/asnq_tanda.py): --config.warm_start.run=FOLDER. Arguments,
joined by commas: `sample`, `minilm` … as everywhere, and those of the first stage's encoder.
"""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "wikiqa"
  presets.crossencoder(config)
  presets.roberta(config)
  presets.adapt(config)
  return presets.apply(config, argument)
