"""The rankers that we recommend, for any data set and encoder (configs/papers/recipes.md has figures).

Words: `fast` (default), a bi-encoder trained with a softmax over a question's own candidates; `accurate`, a
cross-encoder trained in the same way; `embedder` and `reranker`, the same for a published bi-encoder or
cross-encoder, whose folder --config.encoder.pretrained names (with --config.epochs=0 it ranks as it is).
The data set is WikiQA unless --config.data.name says another.
"""

from as2jax.config import base, recipes, words


def get_config(argument=None):
  kind = words.one_of(argument, recipes.RECOMMENDED, "fast")
  config = base.get_config()
  config.data.name = "wikiqa"
  recipes.recommended(config, kind, argument, recipes.RECOMMENDED)
  return config
