"""Untrained baselines on WikiQA through the same evaluation (ASBERT, tables 3 and 4).

Arguments, joined by commas: one of `word_overlap`, `idf_overlap`, `bm25`, `mean` (MEAN-BERT), `cls`
(CLS-BERT); and `sample`, `minilm` as everywhere.
"""

from configs import base, presets
from ml_collections import ConfigDict

from as2jax.errors import InputError

LEXICAL = ("word_overlap", "idf_overlap", "bm25")


def get_config(argument="mean"):
  config = base.get_config()
  config.epochs = 0
  words = argument.split(",")
  kinds = [w for w in words if w in LEXICAL + ("mean", "cls")]
  if len(kinds) != 1:
    raise InputError(f"name one of {', '.join(LEXICAL)}, mean, cls: …/wikiqa_baseline.py:bm25")
  if kinds[0] in LEXICAL:
    config.model = ConfigDict({"name": kinds[0]})
  else:
    config.model = ConfigDict({"name": "biencoder", "pooling": kinds[0], "score": "cosine"})
  return presets.apply(config, ",".join(w for w in words if w not in kinds))
