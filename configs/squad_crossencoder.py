"""BERT_QA on SQuAD's pool (Cross-VAE, table 2): a cross-encoder re-ranks a retriever's best 100.

The retriever is a finished run over the same pool: --config.data.ranking=runs/bm25. Also `squad_44` and
`squad_parts`: other parts of SQuAD.
"""

from as2jax.config import base, recipes, words


def get_config(argument=None):
  config = base.get_config()
  recipes.crossencoder(config)
  recipes.squad(config)
  config.data.negatives = "paragraph"
  return words.apply(config, argument)
