"""One's own files with a recipe: own:triplet,minilm, own:crossencoder, own:bm25.

`as2jax train --recipe=triplet:minilm --train=faq.csv --dev=dev.csv -o runs/faq` names it.
Arguments, joined by commas: a recipe (see as2jax/config/recipes.py), and those of
as2jax/config/presets.py (`minilm` …). The files stand in data.train, data.dev and data.test.
"""

from as2jax.config import base, recipes


def get_config(argument="triplet"):
  return recipes.apply(base.get_config(), argument)
