"""Published XLNet weights: config keys, tensor names and shapes, read from and written to.

Hugging Face's `XLNetModel` holds its attention matrices as bare [d, heads, k] parameters without
`.weight`; the original TensorFlow checkpoints hold the relative biases of all layers in one array.
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

# The original release: variable -> Hugging Face tensor (`{}`: one array for all layers).
TENSORFLOW_STEM = "model/transformer/"
TENSORFLOW_NAMES = {
  "word_embedding/lookup_table": "word_embedding.weight",
  "mask_emb/mask_emb": "mask_emb",
  "seg_embed": "layer.{}.rel_attn.seg_embed",
} | {name: f"layer.{{}}.rel_attn.{name}" for name in ("r_w_bias", "r_r_bias", "r_s_bias")}
TENSORFLOW_LAYER_NAMES = (
  {f"rel_attn/{name}/kernel": f"rel_attn.{name}" for name in ("q", "k", "v", "o", "r")}
  | {
    f"{part}/LayerNorm/{theirs}": f"{part}.layer_norm.{leaf}"
    for part in ("rel_attn", "ff")
    for theirs, leaf in (("gamma", "weight"), ("beta", "bias"))
  }
  | {
    f"ff/layer_{n}/{theirs}": f"ff.layer_{n}.{leaf}"
    for n in (1, 2)
    for theirs, leaf in (("kernel", "weight"), ("bias", "bias"))
  }
)


def fields(config: Mapping[str, Any]) -> dict[str, Any]:
  """`XLNetEncoder` fields that a `config.json` or an original `xlnet_config.json` states.

  The same word `gelu` is the exact function in transformers and the tanh approximation in the
  original code; an original config is known by having no `model_type`.

  Errors: `ValueError` naming the key, for a missing one or a variant that is not implemented.
  """
  required = {
    "hidden_size": "d_model",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "intermediate_size": "d_inner",
  }
  vocabulary = "vocab_size" if "vocab_size" in config else "n_token"
  for key in (*required.values(), vocabulary):
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
  if activation == "gelu" and "model_type" not in config:
    activation = "gelu_new"
  return sizes | {
    "vocab_size": config[vocabulary],
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


def tf_name(name: str) -> str | None:
  """The Hugging Face name of a variable of an original checkpoint; None where it is no weight of
  the model's body (head, optimiser, step). `{}` in it: the array holds that tensor of all layers.
  """
  stem, _, rest = name.partition(TENSORFLOW_STEM)
  if stem or not rest:
    return None
  layer, _, leaf = rest.partition("/")
  if (match := re.fullmatch(r"layer_(\d+)", layer)) and leaf in TENSORFLOW_LAYER_NAMES:
    return f"layer.{match[1]}.{TENSORFLOW_LAYER_NAMES[leaf]}"
  return TENSORFLOW_NAMES.get(rest)


def from_tensorflow(variables: Mapping[str, np.ndarray], num_layers: int) -> dict[str, np.ndarray]:
  """Variables of an original checkpoint as Hugging Face tensors.

  Biases that all layers share (`untie_r` false: [heads, k] in place of [layers, heads, k]) are
  repeated for each. Variables that `tf_name` does not know are left out.
  """
  tensors = {}
  for variable, value in variables.items():
    name = tf_name(variable)
    if name is None:
      continue
    if "{}" in name:
      rank = 3 if name.endswith("seg_embed") else 2
      every = value if value.ndim > rank else np.broadcast_to(value, (num_layers, *value.shape))
      if len(every) != num_layers:
        raise ValueError(
          f"the variable {variable!r} has {len(every)} layers, the config asks for {num_layers}"
        )
      tensors |= {name.format(n): part for n, part in enumerate(every)}
    else:
      tensors[name] = value.T if variable.endswith("kernel") and value.ndim == 2 else value
  return tensors
