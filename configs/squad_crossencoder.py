"""BERT_QA on SQuAD's pool (Cross-VAE, table 2): a cross-encoder re-ranks a retriever's best 100.

The retriever is a finished run over the same pool: --config.data.ranking=runs/bm25.
Arguments as in configs/wikiqa_crossencoder.py, and `squad_44` or `squad_parts`.
"""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  presets.crossencoder(config)
  presets.squad(config)
  config.data.negatives = "paragraph"
  return presets.apply_to_pool(config, argument)
