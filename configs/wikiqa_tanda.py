"""The second stage of TANDA (Garg et al. 2020; CASSIE, section 4.1), after that in --config.warm_start.run."""

from as2jax.config import base, recipes, words


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "wikiqa"
  recipes.crossencoder(config)
  words.ENCODERS["roberta"](config)
  words.adapt(config)
  return words.apply(config, argument)
