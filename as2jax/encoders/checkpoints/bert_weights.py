"""Published BERT and RoBERTa weights: config keys, tensor names and shapes, read and written.

The same interface as `as2jax.encoders.checkpoints.xlnet_weights`; `as2jax.encoders.checkpoints.families` gathers both.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from as2jax.layers.transformer import ACTIVATIONS

# Parameter path -> Hugging Face tensor; `{}` is the layer, stacked on a first axis. `ours` and
# `theirs` turn the tensors themselves.
NAMES = {
  "embeddings/word": "embeddings.word_embeddings.weight",
  "embeddings/position": "embeddings.position_embeddings.weight",
  "embeddings/type": "embeddings.token_type_embeddings.weight",
  "embeddings/norm/scale": "embeddings.LayerNorm.weight",
  "embeddings/norm/bias": "embeddings.LayerNorm.bias",
  "layers/attention_norm/scale": "encoder.layer.{}.attention.output.LayerNorm.weight",
  "layers/attention_norm/bias": "encoder.layer.{}.attention.output.LayerNorm.bias",
  "layers/output_norm/scale": "encoder.layer.{}.output.LayerNorm.weight",
  "layers/output_norm/bias": "encoder.layer.{}.output.LayerNorm.bias",
}
for _ours, _theirs in (
  ("attention/query", "attention.self.query"),
  ("attention/key", "attention.self.key"),
  ("attention/value", "attention.self.value"),
  ("attention/output", "attention.output.dense"),
  ("feed_forward/intermediate", "intermediate.dense"),
  ("feed_forward/output", "output.dense"),
):
  NAMES[f"layers/{_ours}/kernel"] = f"encoder.layer.{{}}.{_theirs}.weight"
  NAMES[f"layers/{_ours}/bias"] = f"encoder.layer.{{}}.{_theirs}.bias"
POOLER_NAMES = {"kernel": "pooler.dense.weight", "bias": "pooler.dense.bias"}
PREFIXES = ("bert.", "roberta.")  # in front of every name in checkpoints of a model with a head

# What published files carry beside the encoder: buffers, the pooler and heads of other tasks.
IGNORED = re.compile(
  r"embeddings\.(position_ids|token_type_ids)|pooler\.dense\.(weight|bias)"
  r"|(cls|classifier|qa_outputs|lm_head)\..+"
)

# Leaves of LayerNorm till 2019.
NORM_LEAVES = {"gamma": "weight", "beta": "bias"}


def fields(config: Mapping[str, Any]) -> dict[str, Any]:
  """`BertEncoder` fields that a `config.json` states (architecture and dropout rates).

  Errors: `ValueError` for a missing key, or a variant that is not implemented.
  """
  positions = config.get("position_embedding_type", "absolute")
  if positions != "absolute":
    raise ValueError(f"position_embedding_type {positions!r}; only 'absolute' is implemented")
  activation = config.get("hidden_act", "gelu")
  if activation not in ACTIVATIONS:
    raise ValueError(f"hidden_act {activation!r} is none of {', '.join(ACTIVATIONS)}")
  required = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
  }
  missing = [key for key in required.values() if key not in config]
  if missing:
    raise ValueError(f"the key {missing[0]!r} is missing")
  # RoBERTa counts positions from behind the padding's id, which keeps its own row.
  offset = (
    config.get("pad_token_id", 1) + 1
    if config.get("model_type") in ("roberta", "xlm-roberta")
    else 0
  )
  return {field: config[key] for field, key in required.items()} | {
    "type_vocab_size": config.get("type_vocab_size", 2),
    "position_offset": offset,
    "layer_norm_eps": config.get("layer_norm_eps", 1e-12),
    "hidden_dropout": config.get("hidden_dropout_prob", 0.1),
    "attention_dropout": config.get("attention_probs_dropout_prob", 0.1),
    "activation": activation,
  }


def ours(path: str, tensor: np.ndarray) -> np.ndarray:
  """One Hugging Face tensor (of one layer) as the parameter at `path`: a kernel is a transpose."""
  return tensor.T if path.rpartition("/")[2] == "kernel" else tensor


def theirs(path: str, value: np.ndarray, num_heads: int) -> np.ndarray:
  """The inverse of `ours`."""
  del num_heads
  return ours(path, value)


def today(name: str) -> str:
  """A tensor's name as `BertModel` has it now: no prefix, LayerNorm's weight and bias."""
  for prefix in PREFIXES:
    name = name.removeprefix(prefix)
  stem, dot, leaf = name.rpartition(".")
  if stem.endswith("LayerNorm"):
    leaf = NORM_LEAVES.get(leaf, leaf)
  return stem + dot + leaf
