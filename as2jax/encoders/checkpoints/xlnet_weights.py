"""Published XLNet weights: config keys, tensor names and shapes, read from and written to.

Hugging Face's `XLNetModel` holds its attention matrices as bare [d, heads, k] parameters without
`.weight`.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from as2jax.encoders.xlnet import ATTENTION_TYPES
from as2jax.layers.transformer import ACTIVATIONS

# Parameter path -> Hugging Face tensor; `{}` is the layer, stacked on a first axis. `ours` and
# `theirs` turn the tensors themselves.
NAMES = {
  "embeddings/word": "word_embedding.weight",
  "layers/attention/query/kernel": "layer.{}.rel_attn.q",
  "layers/attention/key/kernel": "layer.{}.rel_attn.k",
  "layers/attention/value/kernel": "layer.{}.rel_attn.v",
  "layers/attention/relative/kernel": "layer.{}.rel_attn.r",
  "layers/attention/output/kernel": "layer.{}.rel_attn.o",
  "layers/attention/r_w_bias": "layer.{}.rel_attn.r_w_bias",
  "layers/attention/r_r_bias": "layer.{}.rel_attn.r_r_bias",
  "layers/attention/r_s_bias": "layer.{}.rel_attn.r_s_bias",
  "layers/attention/seg_embed": "layer.{}.rel_attn.seg_embed",
  "layers/attention_norm/scale": "layer.{}.rel_attn.layer_norm.weight",
  "layers/attention_norm/bias": "layer.{}.rel_attn.layer_norm.bias",
  "layers/feed_forward/intermediate/kernel": "layer.{}.ff.layer_1.weight",
  "layers/feed_forward/intermediate/bias": "layer.{}.ff.layer_1.bias",
  "layers/feed_forward/output/kernel": "layer.{}.ff.layer_2.weight",
  "layers/feed_forward/output/bias": "layer.{}.ff.layer_2.bias",
  "layers/output_norm/scale": "layer.{}.ff.layer_norm.weight",
  "layers/output_norm/bias": "layer.{}.ff.layer_norm.bias",
}
PREFIX = "transformer."  # in front of every name in checkpoints of a model with a head

# Kernels [d, heads·k] here and [d, heads, k] there; `output` is its own transpose beside that.
HEADED = frozenset(
  f"layers/attention/{name}/kernel" for name in ("query", "key", "value", "relative", "output")
)
# Kernels whose first axis there is our last.
TRANSPOSED = frozenset(
  f"layers/{name}/kernel"
  for name in ("attention/output", "feed_forward/intermediate", "feed_forward/output")
)
# What published files carry beside the encoder: the query stream's start and heads of other tasks.
IGNORED = re.compile(
  r"mask_emb|(lm_loss|sequence_summary|logits_proj|classifier|qa_outputs"
  r"|start_logits|end_logits|answer_class)\..+"
)


def fields(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the `XLNetEncoder` fields that a `config.json` states.

  Errors: `ValueError` naming the key, for a missing one or a variant that is not implemented.
  """
  required = {
    "hidden_size": "d_model",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "intermediate_size": "d_inner",
  }
  for key in (*required.values(), "vocab_size"):
    if key not in config:
      raise ValueError(f"the key {key!r} is missing")
  sizes = {field: config[key] for field, key in required.items()}
  width = config.get("d_head") or sizes["hidden_size"] // sizes["num_heads"]
  if width * sizes["num_heads"] != sizes["hidden_size"]:
    raise ValueError(
      f"d_head {width} × n_head {sizes['num_heads']} is not d_model {sizes['hidden_size']}"
    )
  for key in ("bi_data", "same_length"):
    if config.get(key):
      raise ValueError(f"{key} is {config[key]!r}; only false is implemented")
  attention_type = config.get("attn_type", "bi")
  if attention_type not in ATTENTION_TYPES:
    raise ValueError(f"attn_type {attention_type!r} is none of {', '.join(ATTENTION_TYPES)}")
  activation = config.get("ff_activation", "gelu")
  if activation not in ACTIVATIONS:
    raise ValueError(f"ff_activation {activation!r} is none of {', '.join(ACTIVATIONS)}")
  return sizes | {
    "vocab_size": config["vocab_size"],
    "attention_type": attention_type,
    "clamp_len": config.get("clamp_len", -1),
    "layer_norm_eps": config.get("layer_norm_eps", 1e-12),
    "hidden_dropout": config.get("dropout", 0.1),
    "attention_dropout": config.get("dropatt", config.get("dropout", 0.1)),
    "activation": activation,
  }


def ours(path: str, tensor: np.ndarray) -> np.ndarray:
  """One Hugging Face tensor (of one layer) as the parameter at `path`; a view where it can be."""
  if path in HEADED and tensor.ndim == 3:
    tensor = tensor.reshape(tensor.shape[0], -1)
  return tensor.T if path in TRANSPOSED else tensor


def theirs(path: str, value: np.ndarray, num_heads: int) -> np.ndarray:
  """The inverse of `ours`."""
  value = value.T if path in TRANSPOSED else value
  return value.reshape(value.shape[0], num_heads, -1) if path in HEADED else value
