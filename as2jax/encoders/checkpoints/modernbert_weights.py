"""Published ModernBERT weights: config keys, tensor names and shapes, read and written.

The same interface as `as2jax.encoders.checkpoints.bert_weights`; `families` gathers all of them.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from as2jax.layers.transformer import ACTIVATIONS

PREFIX = "model."  # in front of every name in checkpoints of a model with a head
_OF_A_LAYER = {
  "attention/qkv/kernel": "attn.Wqkv.weight",
  "attention/output/kernel": "attn.Wo.weight",
  "feed_forward/gated/kernel": "mlp.Wi.weight",
  "feed_forward/output/kernel": "mlp.Wo.weight",
  "feed_forward_norm/scale": "mlp_norm.weight",
}
# Parameter path -> Hugging Face tensor; `{}` is the layer, stacked on a first axis from layer 1 on.
NAMES = {
  "embeddings/word": "embeddings.tok_embeddings.weight",
  "embeddings/norm/scale": "embeddings.norm.weight",
  "final_norm/scale": "final_norm.weight",
  "layers/attention_norm/scale": "layers.{}.attn_norm.weight",
  **{f"first_layer/{ours}": f"layers.0.{theirs}" for ours, theirs in _OF_A_LAYER.items()},
  **{f"layers/{ours}": f"layers.{{}}.{theirs}" for ours, theirs in _OF_A_LAYER.items()},
}
FIRST_STACKED = 1
# Heads of other tasks.
IGNORED = re.compile(r"(head|decoder|classifier)\..+")
_REQUIRED = {
  "vocab_size": "vocab_size",
  "hidden_size": "hidden_size",
  "num_layers": "num_hidden_layers",
  "num_heads": "num_attention_heads",
  "intermediate_size": "intermediate_size",
}
_BIASES = ("attention_bias", "mlp_bias", "norm_bias")
_KINDS = ("full_attention", "sliding_attention")


def fields(config: Mapping[str, Any]) -> dict[str, Any]:
  """`ModernBertEncoder` fields that a `config.json` states (architecture and dropout rates).

  Both forms of the config are read: that of its publication (`global_attn_every_n_layers`,
  `global_rope_theta`) and that of transformers 5 (`layer_types`, `rope_parameters`).

  Errors: `ValueError` for a missing key, or a variant that is not implemented.
  """
  missing = [key for key in _REQUIRED.values() if key not in config]
  if missing:
    raise ValueError(f"the key {missing[0]!r} is missing")
  for key in _BIASES:
    if config.get(key, False):
      raise ValueError(f"{key} is {config[key]!r:.80}; only layers without biases are implemented")
  activation = config.get("hidden_activation", "gelu")
  if activation not in ACTIVATIONS:
    raise ValueError(f"hidden_activation {activation!r} is none of {', '.join(ACTIVATIONS)}")
  thetas = [_theta(config, kind) for kind in _KINDS]
  return {field: config[key] for field, key in _REQUIRED.items()} | {
    "max_positions": config.get("max_position_embeddings", 8192),
    "window": config.get("local_attention", 128),
    "global_every": _global_every(config),
    "global_theta": thetas[0],
    "local_theta": thetas[1],
    "layer_norm_eps": config.get("norm_eps", 1e-5),
    "embedding_dropout": config.get("embedding_dropout", 0.0),
    "hidden_dropout": config.get("mlp_dropout", 0.0),
    "attention_dropout": config.get("attention_dropout", 0.0),
    "activation": activation,
  }


def _global_every(config: Mapping[str, Any]) -> int:
  """Every so manieth layer attends globally."""
  kinds = config.get("layer_types")
  if kinds is None:
    return config.get("global_attn_every_n_layers", 3)
  layers = config["num_hidden_layers"]
  if not isinstance(kinds, list) or len(kinds) != layers or not set(kinds) <= set(_KINDS):
    raise ValueError(f"layer_types is no list of {layers} of {' and '.join(_KINDS)}")
  whole = [n for n, kind in enumerate(kinds) if kind == _KINDS[0]]
  every = whole[1] if len(whole) > 1 else layers
  if whole != list(range(0, layers, every)):
    raise ValueError("layer_types: only global attention in every n-th layer is implemented")
  return every


def _theta(config: Mapping[str, Any], kind: str) -> float:
  """The base of the rotary positions of a kind of layers."""
  published, default = {
    _KINDS[0]: ("global_rope_theta", 160_000.0),
    _KINDS[1]: ("local_rope_theta", 10_000.0),
  }[kind]
  rope = config.get("rope_parameters") or {}
  of_kind = (rope.get(kind) if isinstance(rope, Mapping) else None) or {}
  if config.get("rope_scaling") or of_kind.get("rope_type", "default") != "default":
    raise ValueError("rope_parameters: only rotary positions of type 'default' are implemented")
  theta = of_kind.get("rope_theta", config.get(published, default))
  if theta is None and kind == _KINDS[1]:  # as the original code has it: one base for all layers
    return _theta(config, _KINDS[0])
  if type(theta) not in (int, float) or not 1 < theta < 1e12:
    raise ValueError(f"{published} is {theta!r:.80}; expected a number above 1")
  return float(theta)


def ours(path: str, tensor: np.ndarray) -> np.ndarray:
  """One Hugging Face tensor (of one layer) as the parameter at `path`: a kernel is a transpose."""
  return tensor.T if path.rpartition("/")[2] == "kernel" else tensor


def theirs(path: str, value: np.ndarray, num_heads: int) -> np.ndarray:
  """The inverse of `ours`."""
  del num_heads
  return ours(path, value)


def today(name: str) -> str:
  """A tensor's name as `ModernBertModel` has it: no prefix."""
  return name.removeprefix(PREFIX)
