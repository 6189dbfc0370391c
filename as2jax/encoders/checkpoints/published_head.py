"""The head of a published cross-encoder: sequence classifiers, and lists of modules that end in scores.

Two forms are published. A sequence classifier of transformers (`…ForSequenceClassification`) holds its
head among the encoder's tensors. A modular `CrossEncoder` of sentence-transformers lists Transformer,
Pooling, Dense, LayerNorm … in `modules.json`, and its last Dense gives `scores`. Both become the fields
and parameters of `as2jax.models.crossencoder.Reranker`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

from as2jax.encoders.checkpoints import pretrained, sentence_folder, weights
from as2jax.encoders.checkpoints.families import Family
from as2jax.encoders.checkpoints.folders import config_file
from as2jax.encoders.checkpoints.sentence_folder import SentenceFolder
from as2jax.layers import vector_layers
from as2jax.layers.vector_layers import Layer
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json

ARCHITECTURE = "ForSequenceClassification"
SCORES = "scores"  # the library's name of what a cross-encoder's last module gives
NORM_EPSILON = 1e-5  # of the library's LayerNorm, which states none
# The modes by which a ModernBERT's classifier pools, and ours.
_POOLINGS = {"cls": "cls", "mean": "mean"}


def read(folder: epath.PathLike) -> SentenceFolder | None:
  """The cross-encoder in `folder`; None where it holds none (an encoder alone, or a bi-encoder).

  Raises:
    InputError: a module, an order of modules or a layer that is not implemented, a tensor that is
      missing or misshapen; it names the file and the tensor or key.

  """
  folder = epath.Path(folder)
  listed = []
  if (folder / sentence_folder.MODULES).exists():
    listed = sentence_folder.modules(folder)
  if len(listed) > 1:
    return _modular(folder, listed)
  transformer = sentence_folder.transformer_of(folder, listed) if listed else folder
  config = _classifier_config(transformer)
  return None if config is None else _classifier(folder, transformer, config)


def stems(folder: epath.PathLike) -> tuple[str, ...]:
  """The stem of the tensors of each layer of a sequence classifier; () where `folder` is none."""
  config = _classifier_config(epath.Path(folder))
  if config is None:
    return ()
  family, fields = pretrained.read_family(folder)
  return tuple(stem for _, stem in _layers(family, config, fields["hidden_size"], str(folder))[1])


def plain(family: Family, width: int) -> dict[str, Any]:
  """The fields of `Reranker` for a family's sequence classifier with one class and default settings."""
  pooling, layers = _layers(family, {}, width, family.name)
  shapes = [layer if layer[1] else ("dense", 1, *layer[2:]) for layer, _ in layers]
  return {"pooling": (pooling,), "layers": tuple(shapes), "label": 0}


def labels(folder: epath.PathLike) -> list[str]:
  """The names of the classes of a sequence classifier, in their order; [] where there are none."""
  names = (_classifier_config(epath.Path(folder)) or {}).get("id2label") or {}
  return [str(names[key]) for key in sorted(names, key=int)]


def tensors_of(layer: Layer, stem: str, params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """A layer's parameters (`kernel`, `bias`, `scale`) as the library's tensors."""
  tensors = {}
  if layer[0] == "dense":
    tensors[f"{stem}.weight"] = params["kernel"].T
  elif layer[0] == "norm":
    tensors[f"{stem}.weight"] = params["scale"]
  if layer[0] in ("dense", "norm") and layer[-1]:
    tensors[f"{stem}.bias"] = params["bias"]
  return tensors


def _classifier_config(folder: epath.Path) -> dict[str, Any] | None:
  """The config of a sequence classifier; None where the folder's names none."""
  file = config_file(folder)
  if file is None:
    return None
  config = read_json(file)
  names = config.get("architectures") or () if isinstance(config, dict) else ()
  return config if any(str(name).endswith(ARCHITECTURE) for name in names) else None


def _layers(
  family: Family, config: Mapping[str, Any], width: int, file: str
) -> tuple[str, list[tuple[Layer, str]]]:
  """The pooling of a family's sequence classifier, and its layers with the stems of their tensors.

  The number of classes, which only the tensors tell, is 0 here.
  """
  last: tuple[Layer, str]
  if family.name == "modernbert":
    pooling, activation = (config.get(f"classifier_{key}") for key in ("pooling", "activation"))
    pooling, activation = pooling or "cls", activation or "gelu"
    if pooling not in _POOLINGS or activation not in vector_layers.ACTIVATIONS:
      raise InputError(
        f"{file}: classifier_pooling {pooling!r:.80}, classifier_activation {activation!r:.80}; "
        f"implemented are {', '.join(_POOLINGS)} and {', '.join(vector_layers.ACTIVATIONS)}"
      )
    dense = ("dense", width, activation, bool(config.get("classifier_bias", False)))
    normed = ("norm", config.get("norm_eps", 1e-5), bool(config.get("norm_bias", False)))
    last = ("dense", 0, "identity", True), "classifier"
    return _POOLINGS[pooling], [(dense, "head.dense"), (normed, "head.norm"), last]
  # RoBERTa's head holds its own dense layer; BERT's is the encoder's pooler, XLNet's may be absent.
  parts = dict(family.head)
  if family.name == "xlnet":
    summary = config.get("summary_type", "last"), config.get("summary_activation")
    if not config.get("summary_use_proj", True):
      del parts["pooler"]
    if summary != ("last", "tanh" if "pooler" in parts else summary[1]):
      raise InputError(f"{file}: summary_type {summary[0]!r}, {summary[1]!r} is not implemented")
  layers: list[tuple[Layer, str]] = []
  if "pooler" in parts:
    layers.append((("dense", width, "tanh", True), parts["pooler"]))
  layers.append((("dense", 0, "identity", True), parts["head"]))
  return family.tokens, layers


def _classifier(folder: epath.Path, transformer: epath.Path, config: dict) -> SentenceFolder:
  family, fields = pretrained.read_family(transformer)
  width = fields["hidden_size"]
  pooling, layers = _layers(family, config, width, str(config_file(transformer)))
  wanted = {
    f"{stem}.{leaf}": (layer, width)
    for layer, stem in layers
    for leaf in ("weight", *(["bias"] if layer[-1] else []))
  }
  tensors, source = weights.read_tensors(transformer, keep=set(wanted))
  for name in sorted(wanted.keys() - tensors.keys()):
    raise InputError(f"{source}: the tensor {name!r} of the classifier is missing")
  head_layers, params = [], {}
  for number, (layer, stem) in enumerate(layers):
    leaves = {leaf: tensors.get(f"{stem}.{leaf}") for leaf in ("weight", "bias")}
    whole, arrays = _layer(layer, leaves, width, f"{source}: {stem}")
    head_layers.append(whole)
    params |= {f"layer_{number}/{leaf}": value for leaf, value in arrays.items()}
  fields = {"pooling": (pooling,), "layers": tuple(head_layers), **_label(head_layers)}
  _, prompt = sentence_folder.named_prompts(folder)
  return SentenceFolder(
    transformer,
    fields,
    sentence_folder.max_length(transformer),
    sentence_folder.lower_case(transformer),
    params,
    (prompt, ""),
  )


def _layer(
  layer: Layer, leaves: Mapping[str, np.ndarray | None], width: int, where: str
) -> tuple[Layer, dict[str, np.ndarray]]:
  """A layer with its size, and its parameters; InputError for tensors of another shape."""
  leaves = {name: np.asarray(x, np.float32) for name, x in leaves.items() if x is not None}
  weight = leaves["weight"]
  if layer[0] == "norm":
    wanted = {"weight": (width,)}
    arrays, whole = {"scale": weight}, layer
  else:
    size = layer[1] or (len(weight) if weight.ndim else 0)
    wanted = {"weight": (size, width)}
    arrays, whole = {"kernel": weight.T}, (layer[0], size, *layer[2:])
  if layer[-1]:
    wanted["bias"] = wanted["weight"][:1]
    arrays["bias"] = leaves["bias"]
  shapes = {name: x.shape for name, x in leaves.items()}
  if shapes != wanted or 0 in weight.shape:
    raise InputError(f"{where} has the shapes {shapes}, the config asks for {wanted}")
  return whole, arrays


def _label(layers: list[Layer]) -> dict[str, int]:
  """The class that means "answers the question", where that is plain."""
  classes = layers[-1][1]
  return {"label": classes - 1} if classes <= 2 else {}


def _modular(folder: epath.Path, listed: list[tuple[str, epath.Path]]) -> SentenceFolder | None:
  """A list of modules whose last gives scores; None where it gives vectors."""
  kind, last = listed[-1]
  file = last / "config.json"
  config = read_json(file) if kind == "Dense" and file.exists() else {}
  if not isinstance(config, dict) or config.get("module_output_name") != SCORES:
    return None
  kinds = [kind for kind, _ in listed]
  if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {
    "Dense",
    "LayerNorm",
    "Normalize",
  }:
    raise InputError(
      f"{folder / sentence_folder.MODULES}: its modules are {', '.join(kinds)}; implemented are "
      "Transformer, Pooling, then Dense, LayerNorm and Normalize in any order, and a last Dense whose "
      "module_output_name is 'scores'"
    )
  transformer = sentence_folder.transformer_of(folder, listed)
  _, prompt = sentence_folder.named_prompts(folder)
  width, pooling = sentence_folder.read_pooling(listed[1][1], prompted=bool(prompt))
  layers: list[Layer] = []
  params = {}
  for number, (kind, path) in enumerate(listed[2:]):
    arrays: dict[str, np.ndarray] = {}
    if kind == "Dense":
      output = SCORES if path == last else sentence_folder.SENTENCE
      dense, arrays, width = sentence_folder.read_dense(path, width, output)
      layers.append(("dense", *dense))
    elif kind == "LayerNorm":
      layer, arrays = _norm(path, width)
      layers.append(layer)
    else:
      sentence_folder.check_vector(path / "config.json", optional=True)
      layers.append(("normalize",))
    params |= {f"layer_{number}/{leaf}": value for leaf, value in arrays.items()}
  return SentenceFolder(
    transformer,
    {"pooling": pooling, "layers": tuple(layers), **_label(layers)},
    sentence_folder.max_length(transformer),
    sentence_folder.lower_case(transformer),
    params,
    (prompt, ""),
  )


def _norm(folder: epath.Path, width: int) -> tuple[Layer, dict[str, np.ndarray]]:
  file = folder / "config.json"
  config = sentence_folder.check_vector(file)
  if config.get("dimension") != width:
    raise InputError(
      f"{file}: a LayerNorm of {config.get('dimension')} features does not fit the vectors of "
      f"{width} before it"
    )
  names = {"weight": "norm.weight", "bias": "norm.bias"}
  tensors, source = weights.read_tensors(folder, keep=set(names.values()))
  for name in sorted(set(names.values()) - tensors.keys()):
    raise InputError(f"{source}: the tensor {name!r} is missing")
  leaves = {leaf: tensors[name] for leaf, name in names.items()}
  return _layer(("norm", NORM_EPSILON, True), leaves, width, f"{source}: norm")
