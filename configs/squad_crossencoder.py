"""BERT_QA on SQuAD's pool (Cross-VAE, table 2); also `squad_44`, `squad_parts`.

A cross-encoder re-ranks the best 100 of a finished run over the same pool: --config.data.ranking=runs/bm25.
"""

from as2jax.config import base, recipes, words


def get_config(argument=None):
  config = base.get_config()
  recipes.crossencoder(config)
  recipes.squad(config)
  config.data.negatives = "paragraph"
  return words.apply(config, argument)
