"""The rankers that we recommend, for any data set and encoder; the words of configs/recommended.py."""

from collections.abc import Collection

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from as2jax.config import losses, presets


def fast(config: ConfigDict) -> None:
  """The recommended bi-encoder: cosine of means, softmax over a question's own candidates."""
  config.model = ConfigDict({"name": "biencoder", "pooling": "mean", "score": "cosine"})
  config.loss = ConfigDict({"name": "list_softmax", "scale": 20.0})
  _recommended(config)


def accurate(config: ConfigDict) -> None:
  """The recommended cross-encoder: softmax over a question's own candidates, a faster new head."""
  presets.crossencoder(config)
  config.loss = ConfigDict({"name": "list_softmax", "scale": 1.0})
  _recommended(config)
  config.optimizer.lr_multipliers = (("^(head|pooler)/", 10.0),)


def reranker(config: ConfigDict) -> None:
  """A published cross-encoder with its own head, trained further by the loss of `accurate`.

  --config.encoder.pretrained=FOLDER names it; of three and more classes, --config.model.label the one
  that means "answers the question".
  """
  config.model = ConfigDict({"name": "reranker", "label": placeholder(int), "dropout": 0.1})
  config.loss = ConfigDict({"name": "list_softmax", "scale": 1.0})
  _published(config)


def embedder(config: ConfigDict) -> None:
  """A published bi-encoder with its pooling, layers and prompts, trained further as `fast` is."""
  config.model = ConfigDict({"name": "sentence_bert", "score": "cosine"})
  config.loss = ConfigDict({"name": "list_softmax", "scale": 20.0})
  config.encoder.pretrained = presets.SENTENCE_BERT
  _published(config)


def _published(config: ConfigDict) -> None:
  config.encoder.name = config.model.name
  _recommended(config)


def _recommended(config: ConfigDict) -> None:
  """Whole questions a batch, so that each is compared with all of its candidates."""
  config.epochs = 3
  config.data.train_filter = "both"  # a question without a positive or a negative teaches nothing
  config.data.max_length = 128
  losses.grouped(config)
  config.optimizer.rate = 2e-5
  config.optimizer.schedule = "linear"
  config.optimizer.warmup = 0.1


KINDS = {"fast": fast, "accurate": accurate, "embedder": embedder, "reranker": reranker}
# Where dev chose other rates than those that papers give BERT-base (configs/papers/README.md).
RATES = {(kind, presets.MINILM): {"rate": 1e-4, "warmup": 0.5} for kind in ("fast", "accurate")}


def rates_of_encoder(config: ConfigDict, kind: str, words: Collection[str]) -> None:
  """Sets the rate and warm-up that were chosen for one of `KINDS` with this encoder and its own loss.

  Args:
    words: the argument's, already applied; `transfer` and `adapt` have rates of their own.

  """
  if config.loss.name == "list_softmax" and not {"transfer", "adapt"} & set(words):
    config.optimizer.update(RATES.get((kind, config.encoder.get("pretrained")), {}))
