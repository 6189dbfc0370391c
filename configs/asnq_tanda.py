"""The first stage of TANDA (Garg et al. 2020; CASSIE, section 4.1): a cross-encoder on ASNQ.

Arguments, joined by commas: `context` (reads the sentences before and after the candidate, as CASSIE
does; the encoder, roles and head that CASSIE takes by `warm_start.scope=matching`), and `sample`,
`minilm` … as everywhere. Who has no ASNQ names a file in its form:
--config.data.name=asnq_files --config.data.train=train.tsv --config.data.dev=dev.tsv.
"""

from as2jax.config import base, presets


def get_config(argument=None):
  words = (argument or "").split(",")
  config = base.get_config()
  config.data.name = "asnq"
  config.evaluation.splits = ("dev",)  # ASNQ has no test split
  if "context" in words:
    presets.transfer_in_context(config)
  else:
    presets.crossencoder(config)
    presets.transfer(config)
  presets.roberta(config)
  return presets.apply(config, argument, ("context",))
