"""One's own files with a recipe: own:triplet,minilm, own:crossencoder, own:bm25.

`as2jax train --recipe=triplet:minilm --train=faq.csv --dev=dev.csv -o runs/faq` names it. The files stand
in data.train, data.dev and data.test.
"""

from as2jax.config import recipes


def get_config(argument="triplet"):
  return recipes.own(argument)
