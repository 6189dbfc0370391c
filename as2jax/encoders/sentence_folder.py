"""Sentence-BERT folders (Reimers & Gurevych 2019) as sentence-transformers writes them, in and out.

A folder lists its modules in `modules.json`: a transformer, a pooling of its token vectors, and layers
on the vector of a text. `read` turns them into the fields and parameters of
`as2jax.models.biencoder.SentenceBert`; `write_modules` writes them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.encoders import weights
from as2jax.encoders.hub import CONFIG, MODULES
from as2jax.encoders.transformer_folder import write_json
from as2jax.layers.vectors import Layer
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json, read_object

# `encoder.name` of what is opened with all that its folder says.
PUBLISHED = ("sentence_bert", "reranker")
SETTINGS = "config_sentence_transformers.json"
# Keys of these files that change what the transformer reads, and are not implemented.
NOT_READ = ("query_length", "document_length", "query_expansion", "processing_kwargs")
TRANSFORMER_CONFIG = "sentence_bert_config.json"  # older releases name it by the architecture
# The library's pooling modes -> those of `as2jax.layers.pooling`, in the order in which it joins
# the vectors of a folder that names its modes by flags.
POOLINGS = {
  "cls": "cls",
  "max": "max",
  "mean": "mean",
  "mean_sqrt_len_tokens": "mean_sqrt_len",
  "weightedmean": "weighted_mean",
  "lasttoken": "cls_last",
}
FLAGS = {
  "pooling_mode_cls_token": "cls",
  "pooling_mode_max_tokens": "max",
  "pooling_mode_mean_tokens": "mean",
  "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
  "pooling_mode_weightedmean_tokens": "weightedmean",
  "pooling_mode_lasttoken": "lasttoken",
}
TANH = "torch.nn.modules.activation.Tanh"
ACTIVATIONS = {
  TANH: "tanh",
  "torch.nn.modules.linear.Identity": "identity",
  "torch.nn.modules.activation.ReLU": "relu",
  "torch.nn.modules.activation.GELU": "gelu",
  "torch.nn.modules.activation.SiLU": "silu",
  "torch.nn.modules.activation.Sigmoid": "sigmoid",
}
# The library's names of the vector that modules hand on, and of what a cross-encoder gives.
SENTENCE, SCORES = "sentence_embedding", "scores"
NORM_EPSILON = 1e-5  # of the library's LayerNorm, which states none


@dataclasses.dataclass(frozen=True)
class SentenceFolder:
  """What a sentence-transformers folder describes.

  Attributes:
    transformer: the folder of the transformer and its tokeniser.
    fields: of `SentenceBert`, all but `encoder` and `score`, or of `Reranker`, all but `encoder`, and
      but `label` where it is not plain.
    max_length: tokens of a text, special tokens included, at which it is cut; None for the encoder's.
    lower_case: whether texts are lower-cased before the tokeniser sees them.
    params: float32 arrays by parameter path (`dense_0/kernel` [d, size], `dense_0/bias` [size]).
    prompts: what is put before each question and each candidate.

  """

  transformer: epath.Path
  fields: dict[str, Any]
  max_length: int | None
  lower_case: bool
  params: dict[str, np.ndarray]
  prompts: tuple[str, str] = ("", "")


def read(folder: epath.PathLike) -> SentenceFolder:
  """Reads all of a sentence-transformers folder but the transformer's own weights."""
  folder = epath.Path(folder)
  listed, prompts = modules(folder), read_prompts(folder)[:2]
  pooling, layers, params = read_layers(folder, listed, "dense", prompted=any(prompts))
  normalize = layers[-1:] == [("normalize",)]
  dense = layers[: len(layers) - normalize]
  if any(layer[0] != "dense" for layer in dense):
    raise InputError(
      f"{folder / MODULES}: of a bi-encoder, Dense modules and at most one Normalize at the end are "
      "implemented behind the Pooling"
    )
  dense = tuple(layer[1:] for layer in dense)
  fields = {"pooling": pooling, "dense": dense, "normalize": normalize}
  return described(listed[0][1], fields, params, prompts)


def described(
  transformer: epath.Path,
  fields: dict[str, Any],
  params: dict[str, np.ndarray],
  prompts: tuple[str, str],
) -> SentenceFolder:
  """Adds the length of texts (without a statement the tokeniser's limit) and their lower-casing."""
  file = (*sorted(transformer.glob("sentence_*_config.json")), transformer / TRANSFORMER_CONFIG)[0]
  settings = read_config(file)
  for key in NOT_READ:
    if settings.get(key):
      raise InputError(
        f"{file}: {key} is {settings[key]!r:.80}, which changes texts and is not read"
      )
  length = settings.get("max_seq_length")
  length = length or read_config(transformer / "tokenizer_config.json").get("model_max_length")
  limit = None
  if length and length < 2**31:  # transformers writes 1e30 for none
    limit = int(length)
  lower_case = bool(settings.get("do_lower_case", False))
  return SentenceFolder(transformer, fields, limit, lower_case, params, prompts)


def load_tokenizer(folder: SentenceFolder) -> Any:
  """Loads the folder's tokeniser, which lower-cases where the folder says so."""
  from tokenizers import normalizers

  from as2jax.data.text import vocabulary
  from as2jax.data.text.tokenizer import Tokenizer

  backend = vocabulary.load_backend(folder.transformer)
  if folder.lower_case:
    steps = [normalizers.Lowercase(), backend.normalizer]
    backend.normalizer = normalizers.Sequence([step for step in steps if step])
  return Tokenizer(backend, str(folder.transformer))


def transformer(folder: epath.Path) -> epath.Path:
  """Returns the folder of the encoder in `folder`: itself, or that of its first module."""
  return folder if (folder / CONFIG).exists() else modules(folder)[0][1]


def modules(folder: epath.Path) -> list[tuple[str, epath.Path]]:
  """Returns (class name, folder) of each module, the first of which is a Transformer with a config."""
  file = folder / MODULES
  if not file.exists():
    raise InputError(
      f"{folder}: no sentence-transformers folder, {MODULES} is missing; a plain transformer goes "
      "with the model `biencoder`"
    )
  listed = []
  try:
    for entry in read_json(file):
      package, _, name = entry["type"].rpartition(".")
      if package.split(".")[0] != "sentence_transformers" or ".." in entry["path"].split("/"):
        raise InputError(f"{file}: {entry} is code or a place of its own, which is not read")
      listed.append((name, folder / entry["path"].lstrip("/")))
  except (AttributeError, KeyError, TypeError):
    raise InputError(f"{file}: holds no list of modules with `type` and `path`") from None
  if not listed or listed[0][0] != "Transformer" or not (listed[0][1] / CONFIG).exists():
    raise InputError(f"{file}: its first module is no Transformer whose folder has a config")
  return listed


def read_prompts(folder: epath.Path) -> tuple[str, str, str]:
  """Reads what is put before questions and before candidates, else the default, and the default."""
  settings = read_config(folder / SETTINGS)
  prompts = settings.get("prompts") or {}
  name = settings.get("default_prompt_name")
  if name not in (None, *prompts):
    raise InputError(f"{folder / SETTINGS}: default_prompt_name is {name!r}, none of its prompts")
  default = candidate = prompts.get(name, "")
  for name in ("corpus", "passage", "document"):  # the last that is there
    candidate = prompts.get(name, candidate)
  return prompts.get("query", default), candidate, default


def read_layers(
  folder: epath.Path,
  listed: Sequence[tuple[str, epath.Path]],
  stem: str,
  *,
  prompted: bool,
  output: str = SENTENCE,
) -> tuple[tuple[str, ...], list[Layer], dict[str, np.ndarray]]:
  """Reads what follows the transformer: our pooling modes, the layers, and their parameters.

  These are called `{stem}_{number of the layer}/kernel`. A pooling may leave prompts out, which is not
  implemented; `output` is the library's name of what the last module gives.
  """
  if len(listed) < 2 or listed[1][0] != "Pooling":
    raise InputError(f"{folder / MODULES}: no Pooling follows the Transformer")
  width, pooling = _read_pooling(listed[1][1], prompted=prompted)
  layers, params = [], {}
  for number, (kind, path) in enumerate(listed[2:]):
    config = _layer_config(path, output if path == listed[-1][1] else SENTENCE)
    if kind == "Normalize":
      layer, arrays = ("normalize",), {}
    elif kind == "LayerNorm":
      tensors, source = weights.read_tensors(path)
      layer, arrays = fit(("norm", NORM_EPSILON, True), tensors, "norm", width, source)
    elif kind == "Dense":
      activation = ACTIVATIONS[config.get("activation_function", TANH)]
      layer = ("dense", config.get("out_features"), activation, bool(config.get("bias", True)))
      tensors, source = weights.read_tensors(path)
      layer, arrays = fit(layer, tensors, "linear", width, source)
      width = layer[1]
    else:
      raise InputError(
        f"{folder / MODULES}: {kind} is not implemented; implemented are Transformer, Pooling, then "
        "Dense, LayerNorm and Normalize"
      )
    layers.append(layer)
    for leaf, value in arrays.items():
      params[f"{stem}_{number}/{leaf}"] = value
  return pooling, layers, params


def _layer_config(folder: epath.Path, output: str) -> dict[str, Any]:
  """Reads the config of a layer that must give `output` of a text's vector; {} without a config."""
  file = folder / "config.json"
  config = read_config(file)
  wanted = {"module_input_name": SENTENCE, "module_output_name": output, "use_residual": False}
  for key, only in wanted.items():
    if config.get(key) not in (None, only):
      raise InputError(f"{file}: {key} is {config[key]!r}; only {only!r} is implemented")
  activation = config.get("activation_function", TANH)
  if activation not in ACTIVATIONS:
    raise InputError(
      f"{file}: activation_function {activation!r} is none of {', '.join(ACTIVATIONS)}"
    )
  return config


def _read_pooling(folder: epath.Path, *, prompted: bool) -> tuple[int, tuple[str, ...]]:
  """Reads the width of the joined vector, and our names of the modes."""
  file = folder / "config.json"
  config = read_config(file)
  if prompted and not config.get("include_prompt", True):
    raise InputError(f"{file}: a pooling that leaves the prompt's tokens out is not implemented")
  modes = config.get("pooling_mode")
  if modes is None:
    flags = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    modes = [mode for flag, mode in FLAGS.items() if flag in flags] or ["mean"]
    modes += [flag for flag in flags if flag not in FLAGS]
  if isinstance(modes, str):
    modes = [modes]
  width = config.get("embedding_dimension", config.get("word_embedding_dimension"))
  if not isinstance(width, int) or not set(modes) <= POOLINGS.keys():
    raise InputError(
      f"{file}: absent, or {modes} of vectors of {width} numbers is not implemented; modes are "
      f"{', '.join(POOLINGS)}"
    )
  return width * len(modes), tuple(POOLINGS[mode] for mode in modes)


def fit(
  layer: Layer, tensors: Mapping[str, np.ndarray], stem: str, width: int, source: str
) -> tuple[Layer, dict[str, np.ndarray]]:
  """Returns a layer on vectors of `width` with its size, and its parameters from `{stem}.weight`, `.bias`.

  A dense layer of size 0 has that of its tensors; InputError names their file, `source`.
  """
  found = {}
  for leaf in ("weight", "bias"):
    if f"{stem}.{leaf}" in tensors:
      found[leaf] = np.asarray(tensors[f"{stem}.{leaf}"], np.float32)
  shapes = {leaf: tensor.shape for leaf, tensor in found.items()}
  wanted = {"weight": (width,)}
  if layer[0] == "dense":
    size = layer[1] or (*shapes.get("weight", ()), 0)[0]
    layer, wanted = (*layer[:1], size, *layer[2:]), {"weight": (size, width)}
  if layer[-1]:
    wanted["bias"] = wanted["weight"][:1]
  if shapes != wanted or 0 in wanted["weight"]:
    raise InputError(f"{source}: {stem} has the shapes {shapes}, the config asks for {wanted}")
  weight = found.pop("weight")
  if layer[0] == "norm":
    return layer, {"scale": weight, **found}
  return layer, {"kernel": weight.T, **found}


def tensors_of(layer: Layer, stem: str, params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns a layer's parameters as the library's tensors (inverts `fit`)."""
  tensors = {}
  if "kernel" in params:
    tensors[f"{stem}.weight"] = np.asarray(params["kernel"]).T
  elif "scale" in params:
    tensors[f"{stem}.weight"] = params["scale"]
  if layer[-1] is True:
    tensors[f"{stem}.bias"] = params["bias"]
  return tensors


def similarity(folder: epath.PathLike) -> str | None:
  """Returns the library's name of the function that compares two vectors, as the folder states it."""
  return read_config(epath.Path(folder) / SETTINGS).get("similarity_fn_name")


def read_config(file: epath.Path) -> dict[str, Any]:
  """Reads a JSON object; {} where there is no such file."""
  if not file.exists():
    return {}
  return read_object(file, "get the file again")


def write_modules(
  folder: epath.PathLike,
  *,
  width: int,
  pooling: Sequence[str],
  layers: Sequence[tuple[tuple, Mapping[str, Any]]],
  prompts: Sequence[str],
  max_length: int,
  lower_case: bool,
  version: str,
  similarity: str = "",
) -> None:
  """Writes all of a sentence-transformers folder but the transformer, which lies at its root.

  Args:
    width: of token vectors.
    pooling: our modes; none for a cross-encoder whose transformer gives the scores.
    layers: of `as2jax.layers.vectors` with their parameters by leaf.
    prompts: see `SentenceFolder`; a cross-encoder has one for the pair, the first.
    version: of as2jax.
    similarity: the library's name of the function that compares two vectors (cosine or euclidean);
      "" for a cross-encoder.

  """
  folder, output = epath.Path(folder), SENTENCE
  text: dict[str, Any] = {"max_seq_length": max_length, "do_lower_case": lower_case}
  settings: dict[str, Any] = {"__version__": {"as2jax": version}}
  settings |= {"prompts": {}, "default_prompt_name": None}
  if similarity:
    settings["similarity_fn_name"] = similarity
    if any(prompts):
      settings["prompts"] = {"query": prompts[0], "document": prompts[1]}
  else:
    output, settings["model_type"] = SCORES, "CrossEncoder"
    if prompts[0]:
      settings |= {"prompts": {"query": prompts[0]}, "default_prompt_name": "query"}
    if pooling:  # else the transformer's config states the sigmoid of its scores
      settings["activation_fn"] = "torch.nn.modules.activation.Sigmoid"
    else:
      text |= {"transformer_task": "sequence-classification", "module_output_name": SCORES}
  listed = [("", "Transformer")]
  if pooling:
    listed.append(("1_Pooling", "Pooling"))
    write_json(folder / "1_Pooling" / "config.json", _pooling_config(width, pooling))
    width *= len(pooling)
  for number, (layer, params) in enumerate(layers):
    kind = {"dense": "Dense", "norm": "LayerNorm", "normalize": "Normalize"}[layer[0]]
    path = folder / f"{number + 2}_{kind}"
    path.mkdir()
    listed.append((path.name, kind))
    if kind == "LayerNorm":
      write_json(path / "config.json", {"dimension": width})
      weights.write_tensors(tensors_of(layer, "norm", params), path)
    elif kind == "Dense":
      _, size, activation, bias = layer
      config = {"in_features": width, "out_features": size, "bias": bias}
      config["activation_function"] = {v: k for k, v in ACTIVATIONS.items()}[activation]
      if number == len(layers) - 1 and output != SENTENCE:  # older releases do not know the key
        config |= {"module_input_name": SENTENCE, "module_output_name": output}
      write_json(path / "config.json", config)
      weights.write_tensors(tensors_of(layer, "linear", params), path)
      width = size
  entries = []
  for i, (path, kind) in enumerate(listed):
    kind = f"sentence_transformers.models.{kind}"
    entries.append({"idx": i, "name": str(i), "path": path, "type": kind})
  write_json(folder / MODULES, entries)
  write_json(folder / TRANSFORMER_CONFIG, text)
  write_json(folder / SETTINGS, settings)


def _pooling_config(width: int, pooling: Sequence[str]) -> dict[str, Any]:
  """Flags, which every release reads; a list, which new ones do, where flags lose the order."""
  modes = [mode for mode, ours in POOLINGS.items() if ours in pooling]
  if [POOLINGS[mode] for mode in modes] == list(pooling):
    flags = {flag: mode in modes for flag, mode in FLAGS.items()}
    return {"word_embedding_dimension": width, **flags, "include_prompt": True}
  modes.sort(key=lambda mode: pooling.index(POOLINGS[mode]))
  return {"embedding_dimension": width, "pooling_mode": modes, "include_prompt": True}
