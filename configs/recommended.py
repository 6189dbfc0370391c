"""The rankers that we recommend, on WikiQA unless --config.data.name says another (configs/papers/recipes.md).

Words: `fast` (default), a bi-encoder trained with a softmax over a question's own candidates; `accurate`, a
cross-encoder that begins as a cosine, trained in the same way; `embedder` and `reranker`, the same for a published one in
--config.encoder.pretrained (with --config.epochs=0 it ranks as it is).
"""

from as2jax.config import base, recipes, words


def get_config(argument=None):
  kind = words.one_of(argument, recipes.RECOMMENDED, "fast")
  config = base.get_config()
  config.data.name = "wikiqa"
  recipes.recommended(config, kind, argument, recipes.RECOMMENDED)
  return config
