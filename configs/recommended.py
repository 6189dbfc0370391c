"""The ranker that we recommend today, for any data set and encoder.

Arguments, joined by commas: `fast` (default), a bi-encoder trained with a softmax over a question's own
candidates; `accurate`, a cross-encoder trained in the same way, both with `minilm` at the rate that dev
chose for them (as2jax/config/recommended.py); `embedder` and `reranker`, the same for a published
bi-encoder or cross-encoder, whose folder --config.encoder.pretrained names (with --config.epochs=0 it
ranks as it is); `averaged`, which keeps the average of the last hundred steps' parameters; and those of
as2jax/config/presets.py (`sample`, `minilm`, `ettin17m` …). The data set is WikiQA unless
--config.data.name says another. Either may begin from the encoder of a finished `fast`
(--config.warm_start.run=RUN --config.warm_start.scope=encoder): `fast` of SQuAD's paragraphs ranks well
without labels of one's own, and `accurate` begun whole as one of SQuAD's (scope=all) needs fewer of
them (configs/README.md, "Warm start").
configs/papers/README.md has what that gave: on WikiQA and TrecQA `fast` ranks better, on SemEval's
forum posts neither is shown to rank better.
"""

from as2jax.config import base, presets
from as2jax.config.recommended import KINDS, rates_of_encoder
from as2jax.runtime.errors import InputError


def get_config(argument=None):
  words = (argument or "").split(",")
  kinds = [word for word in words if word in KINDS] or ["fast"]
  if len(kinds) > 1:
    raise InputError(f"{' and '.join(kinds)} exclude each other: name one of {', '.join(KINDS)}")
  config = base.get_config()
  config.data.name = "wikiqa"
  KINDS[kinds[0]](config)
  if "averaged" in words:
    config.optimizer.average = 0.99
  presets.apply(config, argument, (*KINDS, "averaged"))
  rates_of_encoder(config, kinds[0], words)
  return config
