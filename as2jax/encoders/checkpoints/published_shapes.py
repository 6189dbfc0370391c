"""Shapes of published encoders by name, for machines that do not have their folders.

Each entry holds what the model's public config file states, as far as an encoder's fields depend on
it, with the address of that file. Folders that are here are read instead (`pretrained.read_family`).
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from as2jax.encoders.checkpoints import elmo_weights, pretrained, published_head, sentence_folder
from as2jax.encoders.checkpoints.families import FAMILIES, Family
from as2jax.runtime.errors import InputError


class Published(NamedTuple):
  """A published config: the address of the file, and what it states."""

  source: str
  config: Mapping[str, Any]


_BASE = {
  "hidden_size": 768,
  "num_hidden_layers": 12,
  "num_attention_heads": 12,
  "intermediate_size": 3072,
}
_MINI = {
  "hidden_size": 384,
  "num_hidden_layers": 6,
  "num_attention_heads": 12,
  "intermediate_size": 1536,
}
_LARGE = {
  "hidden_size": 1024,
  "num_hidden_layers": 24,
  "num_attention_heads": 16,
  "intermediate_size": 4096,
}


def _bert(size: Mapping[str, int]) -> dict[str, Any]:
  return {"model_type": "bert", "vocab_size": 30522, "max_position_embeddings": 512, **size}


def _roberta(size: Mapping[str, int]) -> dict[str, Any]:
  return {
    "model_type": "roberta",
    "vocab_size": 50265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
    **size,
  }


def _xlnet(d_model: int, n_layer: int, n_head: int, d_inner: int) -> dict[str, Any]:
  return {
    "model_type": "xlnet",
    "vocab_size": 32000,
    "d_model": d_model,
    "n_layer": n_layer,
    "n_head": n_head,
    "d_inner": d_inner,
  }


def _modernbert(layers: int, hidden: int, intermediate: int, heads: int) -> dict[str, Any]:
  """Every third layer attends globally, the others within 128 tokens, as the config's defaults say."""
  return {
    "model_type": "modernbert",
    "vocab_size": 50368,
    "max_position_embeddings": 8192,
    "num_hidden_layers": layers,
    "hidden_size": hidden,
    "intermediate_size": intermediate,
    "num_attention_heads": heads,
  }


def _hub(name: str, config: Mapping[str, Any]) -> Published:
  return Published(f"https://huggingface.co/{name}/blob/main/config.json", config)


TRANSFORMERS = {
  "bert-base-uncased": _hub("google-bert/bert-base-uncased", _bert(_BASE)),
  "bert-large-uncased": _hub("google-bert/bert-large-uncased", _bert(_LARGE)),
  "nreimers/MiniLM-L6-H384-uncased": _hub("nreimers/MiniLM-L6-H384-uncased", _bert(_MINI)),
  "roberta-base": _hub("FacebookAI/roberta-base", _roberta(_BASE)),
  "roberta-large": _hub("FacebookAI/roberta-large", _roberta(_LARGE)),
  "microsoft/mpnet-base": _hub(
    "microsoft/mpnet-base",
    {
      "model_type": "mpnet",
      "vocab_size": 30527,
      "max_position_embeddings": 514,
      "layer_norm_eps": 1e-5,
      **_BASE,
    },
  ),
  "xlnet-base-cased": _hub("xlnet/xlnet-base-cased", _xlnet(768, 12, 12, 3072)),
  "xlnet-large-cased": _hub("xlnet/xlnet-large-cased", _xlnet(1024, 24, 16, 4096)),
  "answerdotai/ModernBERT-base": _hub(
    "answerdotai/ModernBERT-base", _modernbert(22, 768, 1152, 12)
  ),
  "answerdotai/ModernBERT-large": _hub(
    "answerdotai/ModernBERT-large", _modernbert(28, 1024, 2624, 16)
  ),
  # Sizes by the table "Model Architecture" in https://github.com/JHU-CLSP/ettin-encoder-vs-decoder.
  **{
    f"jhu-clsp/ettin-encoder-{name}": _hub(f"jhu-clsp/ettin-encoder-{name}", _modernbert(*sizes))
    for name, sizes in {
      "17m": (7, 256, 384, 4),
      "32m": (10, 384, 576, 6),
      "68m": (19, 512, 768, 8),
      "150m": (22, 768, 1152, 12),
      "400m": (28, 1024, 2624, 16),
      "1b": (28, 1792, 3840, 28),
    }.items()
  },
}
# By name: the address of its modules, the transformer, the fields of `SentenceBert`, max_seq_length.
SENTENCE_BERTS = {
  "sentence-transformers/bert-base-nli-mean-tokens": (
    "https://huggingface.co/sentence-transformers/bert-base-nli-mean-tokens/tree/main",
    "bert-base-uncased",
    {"pooling": ("mean",), "dense": (), "normalize": False},
    128,
  )
}
# ELMo "original", 93.6 million parameters.
ELMO = Published(
  "https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/"
  "elmo_2x4096_512_2048cnn_2xhighway_options.json",
  {
    "lstm": {
      "use_skip_connections": True,
      "projection_dim": 512,
      "cell_clip": 3,
      "proj_clip": 3,
      "dim": 4096,
      "n_layers": 2,
    },
    "char_cnn": {
      "activation": "relu",
      "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
      "n_highway": 2,
      "embedding": {"dim": 16},
      "n_characters": 262,
      "max_characters_per_token": 50,
    },
  },
)


def family(name: str) -> tuple[Family, dict[str, Any]]:
  """The family and the fields of a transformer that is published by `name`, or lies in a folder.

  Raises:
    InputError: neither.

  """
  if name in TRANSFORMERS:
    config = TRANSFORMERS[name].config
    model_family = FAMILIES[config["model_type"]]
    return model_family, model_family.fields(config)
  return pretrained.read_family(pretrained.resolve(name))


class SentenceShapes(NamedTuple):
  """Of a sentence-transformers folder: its transformer, what follows it, and the longest text."""

  family: Family
  sizes: dict[str, Any]
  fields: Mapping[str, Any]
  max_length: int | None


def sentence_bert(name: str) -> SentenceShapes:
  """A Sentence-BERT that is published by `name`, or lies in a folder.

  Raises:
    InputError: neither.

  """
  if name in SENTENCE_BERTS:
    _, transformer, fields, max_length = SENTENCE_BERTS[name]
    return SentenceShapes(*family(transformer), fields, max_length)
  published = sentence_folder.read(pretrained.resolve(name))
  kind, sizes = pretrained.read_family(published.transformer)
  return SentenceShapes(kind, sizes, published.fields, published.max_length)


def reranker(name: str) -> SentenceShapes:
  """A published cross-encoder: by `name`, or in a folder.

  An encoder that is known by its name alone gets the head of its family's sequence classifiers, with
  one class.

  Raises:
    InputError: neither, or the folder holds no cross-encoder.

  """
  if name in TRANSFORMERS:
    kind, sizes = family(name)
    return SentenceShapes(kind, sizes, published_head.plain(kind, sizes["hidden_size"]), None)
  folder = pretrained.resolve(name)
  published = published_head.read(folder)
  if published is None:
    raise InputError(f"{folder} is no cross-encoder")
  return SentenceShapes(
    *pretrained.read_family(published.transformer), published.fields, published.max_length
  )


def elmo() -> dict[str, Any]:
  """The fields of the published ELMo."""
  return elmo_weights.fields_of(dict(ELMO.config), ELMO.source)


def vector_width(file: str) -> int:
  """Of word vectors, as the published files have it in their names (`glove.6B.300d.txt`).

  Raises:
    InputError: the name does not say it.

  """
  match = re.search(r"\.(\d+)d\b", file)
  if not match:
    raise InputError(
      f"encoder.vectors = {file!r}: the name does not say how wide the vectors are; "
      "give such as glove.6B.300d.txt (the file is not read)"
    )
  return int(match[1])
