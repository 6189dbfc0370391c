"""Published cross-encoders: sequence classifiers, and lists of modules that end in scores.

A sequence classifier of transformers (`…ForSequenceClassification`) holds its head among the encoder's
tensors. A modular `CrossEncoder` of sentence-transformers lists Transformer, Pooling, Dense, LayerNorm
… in `modules.json`, and its last Dense gives `scores`. Both become the fields and parameters of
`as2jax.models.crossencoder.Reranker`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.encoders import hub, sentence_folder, transformer_folder, weights
from as2jax.encoders.family import Transformer
from as2jax.encoders.sentence_folder import SentenceFolder, write_modules, write_settings
from as2jax.layers.vectors import Layer
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json

ARCHITECTURE = "ForSequenceClassification"
SCORES = "scores"  # the library's name of what a cross-encoder's last module gives
NORM_EPSILON = 1e-5  # of the library's LayerNorm, which states none


def read(folder: epath.PathLike) -> SentenceFolder | None:
  """Reads the cross-encoder in `folder`; None where it holds none (an encoder, or a bi-encoder).

  Raises:
    InputError: a module, an order of modules or a layer that is not implemented, a tensor that is
      missing or misshapen; it names the file and the tensor or key.

  """
  folder = epath.Path(folder)
  listed = sentence_folder.modules(folder) if (folder / hub.MODULES).exists() else []
  if len(listed) > 1:
    return _modular(folder, listed)
  transformer = sentence_folder.transformer_of(folder, listed) if listed else folder
  config = _classifier_config(transformer)
  return None if config is None else _classifier(folder, transformer, config)


def stems(folder: epath.PathLike) -> tuple[str, ...]:
  """Returns the stem of each layer's tensors in a sequence classifier; () where there is none."""
  config = _classifier_config(epath.Path(folder))
  if config is None:
    return ()
  family, fields = transformer_folder.read_family(folder)
  return tuple(stem for _, stem in _layers(family, config, fields["hidden_size"], str(folder))[1])


def plain(family: Transformer, width: int) -> dict[str, Any]:
  """Returns the fields of `Reranker` for a family's sequence classifier with one class."""
  pooling, layers = _layers(family, {}, width, family.name)
  shapes = [layer if layer[1] else ("dense", 1, *layer[2:]) for layer, _ in layers]
  return {"pooling": (pooling,), "layers": tuple(shapes), "label": 0}


def labels(folder: epath.PathLike) -> list[str]:
  """Returns the names of a sequence classifier's classes, in their order; [] where there are none."""
  names = (_classifier_config(epath.Path(folder)) or {}).get("id2label") or {}
  return [str(names[key]) for key in sorted(names, key=int)]


def tensors_of(layer: Layer, stem: str, params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns a layer's parameters (`kernel`, `bias`, `scale`) as the library's tensors."""
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
  file = hub.config_file(folder)
  config = read_json(file) if file else None
  names = config.get("architectures") or () if isinstance(config, dict) else ()
  return config if any(str(name).endswith(ARCHITECTURE) for name in names) else None


def _layers(
  family: Transformer, config: Mapping[str, Any], width: int, file: str
) -> tuple[str, Sequence[tuple[Layer, str]]]:
  """The pooling of a family's sequence classifier, and its layers with the stems of their tensors.

  The number of classes, which only the tensors tell, is 0 here.
  """
  try:
    if family.classifier:
      return family.classifier(config, width)
  except ValueError as error:
    raise InputError(f"{file}: {error}") from None
  pooler, head = ("dense", width, "tanh", True), ("dense", 0, "identity", True)
  return family.token, [(pooler, family.head["pooler"]), (head, family.head["head"])]


def _classifier(folder: epath.Path, transformer: epath.Path, config: dict) -> SentenceFolder:
  family, fields = transformer_folder.read_family(transformer)
  width = fields["hidden_size"]
  pooling, layers = _layers(family, config, width, str(transformer / hub.CONFIG))
  wanted = set()
  for layer, stem in layers:
    wanted |= {f"{stem}.weight", f"{stem}.bias"} if layer[-1] else {f"{stem}.weight"}
  tensors, source = weights.read_tensors(transformer, keep=wanted)
  for name in sorted(wanted - tensors.keys()):
    raise InputError(f"{source}: the tensor {name!r} of the classifier is missing")
  head_layers, params = [], {}
  for number, (layer, stem) in enumerate(layers):
    leaves = {leaf: tensors.get(f"{stem}.{leaf}") for leaf in ("weight", "bias")}
    whole, arrays = _layer(layer, leaves, width, f"{source}: {stem}")
    head_layers.append(whole)
    for leaf, value in arrays.items():
      params[f"layer_{number}/{leaf}"] = value
  return _found(folder, transformer, (pooling,), head_layers, params)


def _found(
  folder: epath.Path,
  transformer: epath.Path,
  pooling: tuple[str, ...],
  layers: Sequence[Layer],
  params: dict[str, np.ndarray],
) -> SentenceFolder:
  """What a folder describes; the class that means "answers the question" where that is plain."""
  classes = layers[-1][1]
  label = {"label": classes - 1} if classes <= 2 else {}
  return SentenceFolder(
    transformer,
    {"pooling": pooling, "layers": tuple(layers), **label},
    sentence_folder.max_length(transformer),
    sentence_folder.lower_case(transformer),
    params,
    (sentence_folder.named_prompts(folder)[1], ""),
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


def _modular(folder: epath.Path, listed: list[tuple[str, epath.Path]]) -> SentenceFolder | None:
  """A list of modules whose last gives scores; None where it gives vectors."""
  kind, last = listed[-1]
  file = last / "config.json"
  config = read_json(file) if kind == "Dense" and file.exists() else {}
  if not isinstance(config, dict) or config.get("module_output_name") != SCORES:
    return None
  kinds = [kind for kind, _ in listed]
  if kinds[:2] != ["Transformer", "Pooling"] or not {*kinds[2:]} <= {
    "Dense",
    "LayerNorm",
    "Normalize",
  }:
    raise InputError(
      f"{folder / hub.MODULES}: its modules are {', '.join(kinds)}; implemented are "
      "Transformer, Pooling, then Dense, LayerNorm and Normalize in any order, and a last Dense whose "
      "module_output_name is 'scores'"
    )
  transformer = sentence_folder.transformer_of(folder, listed)
  prompted = bool(sentence_folder.named_prompts(folder)[1])
  width, pooling = sentence_folder.read_pooling(listed[1][1], prompted=prompted)
  layers: list[Layer] = []
  params = {}
  for number, (kind, path) in enumerate(listed[2:]):
    arrays: dict[str, np.ndarray] = {}
    layer: Layer = ("normalize",)
    if kind == "Dense":
      output = SCORES if path == last else sentence_folder.SENTENCE
      dense, arrays, width = sentence_folder.read_dense(path, width, output)
      layer = ("dense", *dense)
    elif kind == "LayerNorm":
      layer, arrays = _norm(path, width)
    else:
      sentence_folder.check_vector(path / "config.json", optional=True)
    layers.append(layer)
    for leaf, value in arrays.items():
      params[f"layer_{number}/{leaf}"] = value
  return _found(folder, transformer, pooling, layers, params)


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


def write_scoring_modules(
  folder: epath.PathLike,
  *,
  width: int,
  pooling: Sequence[str],
  layers: Sequence[tuple[tuple, Mapping[str, np.ndarray]]],
  max_length: int,
  lower_case: bool,
) -> None:
  """Writes the modules of a modular `CrossEncoder` behind the transformer at the folder's root.

  Args:
    width: of the transformer's token vectors.
    pooling: our modes.
    layers: of `as2jax.layers.vectors` with their parameters by leaf; the last gives scores.
    max_length: tokens of a pair, special tokens included.
    lower_case: as in `sentence_folder.SentenceFolder`.

  """
  text = {"max_seq_length": max_length, "do_lower_case": lower_case}
  write_modules(folder, width=width, pooling=pooling, layers=layers, output=SCORES, settings=text)


def write_classifier_module(
  folder: epath.PathLike, *, prompt: str, lower_case: bool, max_length: int, version: str
) -> None:
  """Writes what `CrossEncoder` does to every pair before a sequence classifier reads it.

  The library reads it in a folder with a list of modules alone, here the classifier as a whole;
  transformers' own classes read none of it.

  Args:
    prompt: before every pair; "" for none.
    lower_case: as in `sentence_folder.SentenceFolder`.
    max_length: tokens of a pair, special tokens included.

  """
  task = {"transformer_task": "sequence-classification", "module_output_name": SCORES}
  text = {"max_seq_length": max_length, "do_lower_case": lower_case}
  write_modules(folder, settings=task | text)
  prompts = {"query": prompt} if prompt else {}
  write_settings(folder, version=version, prompts=prompts, cross_encoder=True, activation=False)
