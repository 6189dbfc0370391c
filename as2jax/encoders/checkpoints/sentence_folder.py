"""Sentence-BERT folders (Reimers & Gurevych 2019), as sentence-transformers writes them.

A folder lists its modules in `modules.json`: a transformer, a pooling of its token vectors, dense
layers, a normalisation. `read` turns them into the fields and parameters of
`as2jax.models.sentence_bert.SentenceBert`; `as2jax.encoders.checkpoints.published_folder` writes them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

from as2jax.encoders.checkpoints import weights
from as2jax.encoders.checkpoints.folders import config_file
from as2jax.runtime.errors import InputError
from as2jax.runtime.regular_files import read_json

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
# Older releases name the file by the architecture.
TRANSFORMER_CONFIGS = tuple(f"sentence_{kind}_config.json" for kind in ("bert", "roberta", "xlnet"))
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
ACTIVATIONS = {
  "torch.nn.modules.activation.Tanh": "tanh",
  "torch.nn.modules.linear.Identity": "identity",
  "torch.nn.modules.activation.ReLU": "relu",
  "torch.nn.modules.activation.GELU": "gelu",
}
SENTENCE = "sentence_embedding"  # the library's name of the vector that modules hand on


@dataclasses.dataclass(frozen=True)
class SentenceFolder:
  """What a sentence-transformers folder describes.

  Attributes:
    transformer: the folder of the transformer and its tokeniser.
    fields: of `SentenceBert`, all but `encoder` and `score`: `pooling` (modes whose vectors are
      joined), `dense` ((size, activation, whether it has a bias) of each layer) and `normalize`.
    max_length: tokens of a text, special tokens included; what exceeds it is cut. None: as many as
      the encoder takes.
    lower_case: whether texts are lower-cased before the tokeniser sees them.
    params: float32 arrays by parameter path (`dense_0/kernel` [d, size], `dense_0/bias` [size]).

  """

  transformer: epath.Path
  fields: dict[str, Any]
  max_length: int | None
  lower_case: bool
  params: dict[str, np.ndarray]


def read(folder: epath.PathLike) -> SentenceFolder:
  """Reads all of a sentence-transformers folder but the transformer's own weights.

  Errors: `InputError` for a folder without `modules.json`, a module or an order of modules that is
  not implemented (a word-embedding model, a residual dense layer, a prompt before every text), and
  tensors that do not fit.
  """
  folder = epath.Path(folder)
  modules = _modules(folder)
  kinds = [kind for kind, _ in modules]
  dense = [path for kind, path in modules if kind == "Dense"]
  normalize = [kind for kind in kinds if kind == "Normalize"]
  known = ["Transformer", "Pooling", *["Dense"] * len(dense), *normalize]
  if kinds != known or len(normalize) > 1:
    raise InputError(
      f"{folder / MODULES}: its modules are {', '.join(kinds) or 'none'}; implemented are "
      "Transformer, Pooling, any number of Dense and at most one Normalize, in this order"
    )
  refuse_prompt(folder)
  transformer = modules[0][1]
  if config_file(transformer) is None:
    raise InputError(f"{transformer}: the transformer that {folder / MODULES} names has no config")
  width, pooling = _pooling(modules[1][1])
  layers, params = [], {}
  for number, path in enumerate(dense):
    layer, arrays, width = _dense(path, width)
    layers.append(layer)
    params |= {f"dense_{number}/{leaf}": value for leaf, value in arrays.items()}
  if normalize:
    _check_vector(modules[-1][1] / "config.json", optional=True)
  settings = _transformer_settings(transformer)
  fields = {"pooling": pooling, "dense": tuple(layers), "normalize": bool(normalize)}
  return SentenceFolder(
    transformer,
    fields,
    _max_length(transformer, settings),
    bool(settings.get("do_lower_case", False)),
    params,
  )


def load_tokenizer(folder: SentenceFolder) -> Any:
  """The folder's tokeniser (`as2jax.data.text.tokenizer.Tokenizer`); lower-casing where it says so."""
  from tokenizers import normalizers

  from as2jax.data.text import vocabulary
  from as2jax.data.text.tokenizer import Tokenizer

  backend = vocabulary.load_backend(folder.transformer)
  if folder.lower_case:
    first = normalizers.Lowercase()
    last = backend.normalizer
    backend.normalizer = first if last is None else normalizers.Sequence([first, last])
  return Tokenizer(backend, str(folder.transformer))


def _modules(folder: epath.Path) -> list[tuple[str, epath.Path]]:
  """(class name, folder) of each module; the classes moved between packages over the releases."""
  file = folder / MODULES
  if not file.exists():
    raise InputError(
      f"{folder}: no sentence-transformers folder, {MODULES} is missing; a plain transformer goes "
      "with the model `biencoder`"
    )
  listed = _json(file, list)
  found = []
  for number, entry in enumerate(listed):
    kind = entry.get("type") if isinstance(entry, dict) else None
    path = entry.get("path") if isinstance(entry, dict) else None
    if not isinstance(kind, str) or not isinstance(path, str):
      raise InputError(f"{file}: module {number} has no `type` and `path`")
    package, _, name = kind.rpartition(".")
    if package.split(".")[0] != "sentence_transformers":
      raise InputError(f"{file}: module {number} is {kind}, code of its own, which is not run")
    if ".." in path.split("/") or path.startswith("/"):
      raise InputError(f"{file}: module {number} lies at {path!r}, outside of the folder")
    found.append((name, folder / path if path else folder))
  return found


def refuse_prompt(folder: epath.Path) -> None:
  """Raises InputError where the folder puts a prompt before every text."""
  file = folder / SETTINGS
  settings = _json(file, dict) if file.exists() else {}
  name = settings.get("default_prompt_name")
  if name and (settings.get("prompts") or {}).get(name):
    raise InputError(
      f"{file}: default_prompt_name {name!r} puts a prompt before every text, which "
      "is not implemented; make it null and put the prompt into the texts"
    )


def _pooling(folder: epath.Path) -> tuple[int, tuple[str, ...]]:
  """The width of the joined vector, and our names of the modes."""
  file = folder / "config.json"
  config = _json(file, dict)
  modes = config.get("pooling_mode")
  if modes is None:
    modes = [mode for flag, mode in FLAGS.items() if config.get(flag)] or ["mean"]
  modes = [modes] if isinstance(modes, str) else list(modes)
  unknown = [mode for mode in modes if mode not in POOLINGS]
  unknown += [
    key for key in config if key.startswith("pooling_mode_") and key not in FLAGS and config[key]
  ]
  if unknown:
    raise InputError(f"{file}: pooling mode {unknown[0]!r} is none of {', '.join(POOLINGS)}")
  width = config.get("embedding_dimension", config.get("word_embedding_dimension"))
  if not isinstance(width, int):
    raise InputError(f"{file}: the key 'word_embedding_dimension' is missing")
  return width * len(modes), tuple(POOLINGS[mode] for mode in modes)


def _dense(
  folder: epath.Path, width: int
) -> tuple[tuple[int, str, bool], dict[str, np.ndarray], int]:
  """((size, activation, bias), {kernel, bias}, size) of a dense layer on vectors of `width`."""
  file = folder / "config.json"
  config = _check_vector(file)
  if config.get("use_residual"):
    raise InputError(f"{file}: use_residual is true; a residual dense layer is not implemented")
  activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
  if activation not in ACTIVATIONS:
    raise InputError(
      f"{file}: activation_function {activation!r} is none of {', '.join(ACTIVATIONS)}"
    )
  size, bias = config.get("out_features"), bool(config.get("bias", True))
  if config.get("in_features") != width or not isinstance(size, int):
    raise InputError(
      f"{file}: a layer of {config.get('in_features')} to {size} features does not "
      f"fit the vectors of {width} before it"
    )
  tensors, source = weights.read_tensors(folder)
  wanted = {"linear.weight": (size, width)} | ({"linear.bias": (size,)} if bias else {})
  shapes = {name: tensor.shape for name, tensor in tensors.items()}
  if shapes != wanted:
    raise InputError(f"{source}: holds {shapes}, {file} asks for {wanted}")
  arrays = {"kernel": np.asarray(tensors["linear.weight"].T, np.float32)}
  if bias:
    arrays["bias"] = np.asarray(tensors["linear.bias"], np.float32)
  return (size, ACTIVATIONS[activation], bias), arrays, size


def _check_vector(file: epath.Path, optional: bool = False) -> dict[str, Any]:
  """The config of a module that must work on the sentence's vector, not on those of tokens."""
  config = {} if optional and not file.exists() else _json(file, dict)
  for key in ("module_input_name", "module_output_name"):
    if config.get(key) not in (None, SENTENCE):
      raise InputError(f"{file}: {key} is {config[key]!r}; only {SENTENCE!r} is implemented")
  return config


def _transformer_settings(folder: epath.Path) -> dict[str, Any]:
  files = [folder / name for name in TRANSFORMER_CONFIGS if (folder / name).exists()]
  return _json(files[0], dict) if files else {}


def max_length(folder: epath.PathLike) -> int | None:
  """The longest text, or pair of texts, in tokens, as a transformer's folder states it."""
  folder = epath.Path(folder)
  return _max_length(folder, _transformer_settings(folder))


def similarity(folder: epath.PathLike) -> str | None:
  """The library's name of the function that compares two vectors, as the folder states it."""
  file = epath.Path(folder) / SETTINGS
  return _json(file, dict).get("similarity_fn_name") if file.exists() else None


def _max_length(folder: epath.Path, settings: Mapping[str, Any]) -> int | None:
  """What the folder states, else the tokeniser's limit; transformers writes 1e30 for none."""
  length = settings.get("max_seq_length")
  file = folder / "tokenizer_config.json"
  if length is None and file.exists():
    length = _json(file, dict).get("model_max_length")
  return int(length) if length is not None and length < 2**31 else None


def _json(file: epath.Path, kind: type) -> Any:
  content = read_json(file)
  if not isinstance(content, kind):
    raise InputError(f"{file}: holds no JSON {'object' if kind is dict else 'list'}")
  return content
