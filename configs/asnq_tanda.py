"""The first stage of TANDA (Garg et al. 2020; CASSIE, section 4.1): a cross-encoder on ASNQ.

Arguments, joined by commas: `sample`, `minilm` … as everywhere. Who has no ASNQ names a file in its
form: --config.data.name=asnq_files --config.data.train=train.tsv --config.data.dev=dev.tsv.
"""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "asnq"
  config.evaluation.splits = ("dev",)  # ASNQ has no test split
  presets.crossencoder(config)
  presets.roberta(config)
  presets.transfer(config)
  return presets.apply(config, argument)
