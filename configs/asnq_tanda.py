"""The first stage of TANDA (Garg et al. 2020; CASSIE, section 4.1): a cross-encoder on ASNQ.

`context` reads the sentences before and after the candidate, as CASSIE does, which begins with it by
`warm_start.scope=matching`. Files in ASNQ's form: --config.data.name=asnq_files.
"""

from as2jax.config import base, recipes, words


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "asnq"
  config.evaluation.splits = ("dev",)  # ASNQ has no test split
  if "context" in words.split(argument):
    _in_context(config)
  else:
    recipes.crossencoder(config)
    words.transfer(config)
  words.ENCODERS["roberta"](config)
  return words.apply(config, argument, ("context",))


def _in_context(config):
  """Set TANDA's first stage over CASSIE's units: roles and head learn ten times as fast as the encoder.

  At the encoder's own rate 919 steps on SQuAD come to a dev MAP of .49, with ten times that to .88.
  """
  recipes.loct_model(config)
  config.model.template = "context"
  config.model.segments_start = "zero"  # the embeddings of the roles begin as what BERT has read
  config.data.max_length = 256
  config.batch.row_lengths = (256,)
  words.transfer(config)
  config.optimizer.lr_multipliers = (("^(?!encoder/)", 10.0),)
