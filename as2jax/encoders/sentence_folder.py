"""Sentence-BERT folders (Reimers & Gurevych 2019) as sentence-transformers writes them, in and out.

A folder lists its modules in `modules.json`: a transformer, a pooling of its token vectors, dense
layers, a normalisation. `read` turns them into the fields and parameters of
`as2jax.models.biencoder.SentenceBert`; `write_sentence_modules` writes them.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.encoders import weights
from as2jax.encoders.hub import MODULES, config_file
from as2jax.encoders.transformer_folder import write_json
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json

log = logging.getLogger(__name__)
# `encoder.name` of what is opened with all that its folder says.
PUBLISHED = ("sentence_bert", "reranker")
SETTINGS = "config_sentence_transformers.json"
TRANSFORMER_CONFIG = "sentence_bert_config.json"  # older releases name it by the architecture
# Keys of these files that change what the transformer reads, and are not implemented.
NOT_READ = ("query_length", "document_length", "query_expansion", "processing_kwargs")
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
  "torch.nn.modules.activation.SiLU": "silu",
  "torch.nn.modules.activation.Sigmoid": "sigmoid",
}
SENTENCE = "sentence_embedding"  # the library's name of the vector that modules hand on
# The library's names of prompts before questions and before candidates; the first that is there.
QUERY_PROMPTS = ("query",)
DOCUMENT_PROMPTS = ("document", "passage", "corpus")

Dense = tuple[int, str, bool]  # size, activation, whether it has a bias


@dataclasses.dataclass(frozen=True)
class SentenceFolder:
  """What a sentence-transformers folder describes.

  Attributes:
    transformer: the folder of the transformer and its tokeniser.
    fields: of `SentenceBert`, all but `encoder` and `score`: `pooling` (modes whose vectors are
      joined), `dense` (size, activation and bias of each layer) and `normalize`; of `Reranker`:
      `pooling`, `layers`, and `label` where it is plain.
    max_length: tokens of a text, special tokens included; what exceeds it is cut. None: as many as
      the encoder takes.
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
  """Reads all of a sentence-transformers folder but the transformer's own weights.

  Raises:
    InputError: no `modules.json`, a module or an order of modules that is not implemented (a
      word-embedding model, a residual dense layer, a prompt that no pooling sees, a length of
      questions of their own), or tensors that do not fit.

  """
  folder = epath.Path(folder)
  listed = modules(folder)
  kinds = [kind for kind, _ in listed]
  normalize = kinds[-1:] == ["Normalize"]
  dense = listed[2:-1] if normalize else listed[2:]
  if kinds[:2] != ["Transformer", "Pooling"] or any(kind != "Dense" for kind, _ in dense):
    raise InputError(
      f"{folder / MODULES}: its modules are {', '.join(kinds) or 'none'}; implemented are "
      "Transformer, Pooling, any number of Dense and at most one Normalize, in this order"
    )
  transformer = transformer_of(folder, listed)
  prompts = _prompts(folder)
  width, pooling = read_pooling(listed[1][1], prompted=any(prompts))
  layers, params = [], {}
  for number, (_, path) in enumerate(dense):
    layer, arrays, width = read_dense(path, width)
    layers.append(layer)
    for leaf, value in arrays.items():
      params[f"dense_{number}/{leaf}"] = value
  if normalize:
    check_vector(listed[-1][1] / "config.json", optional=True)
  fields = {"pooling": pooling, "dense": tuple(layers), "normalize": normalize}
  return SentenceFolder(
    transformer, fields, max_length(transformer), lower_case(transformer), params, prompts
  )


def load_tokenizer(folder: SentenceFolder) -> Any:
  """Loads the folder's tokeniser, which lower-cases where the folder says so."""
  from tokenizers import normalizers

  from as2jax.data.text import vocabulary
  from as2jax.data.text.tokenizer import Tokenizer

  backend = vocabulary.load_backend(folder.transformer)
  if folder.lower_case:
    first, last = normalizers.Lowercase(), backend.normalizer
    backend.normalizer = first if last is None else normalizers.Sequence([first, last])
  return Tokenizer(backend, str(folder.transformer))


def modules(folder: epath.Path) -> list[tuple[str, epath.Path]]:
  """Returns (class name, folder) of each module; the classes' package differs between releases."""
  file = folder / MODULES
  if not file.exists():
    raise InputError(
      f"{folder}: no sentence-transformers folder, {MODULES} is missing; a plain transformer goes "
      "with the model `biencoder`"
    )
  named_folders = []
  for number, entry in enumerate(_json(file, list)):
    kind, path = (entry.get(k) if isinstance(entry, dict) else None for k in ("type", "path"))
    if not isinstance(kind, str) or not isinstance(path, str):
      raise InputError(f"{file}: module {number} has no `type` and `path`")
    package, _, name = kind.rpartition(".")
    if package.split(".")[0] != "sentence_transformers":
      raise InputError(f"{file}: module {number} is {kind}, code of its own, which is not run")
    if ".." in path.split("/") or path.startswith("/"):
      raise InputError(f"{file}: module {number} lies at {path!r}, outside of the folder")
    named_folders.append((name, folder / path if path else folder))
  return named_folders


def transformer_of(folder: epath.Path, listed: list[tuple[str, epath.Path]]) -> epath.Path:
  """Returns the folder of the transformer, the first of the modules; InputError without a config."""
  if not listed or listed[0][0] != "Transformer":
    raise InputError(f"{folder / MODULES}: its first module is no Transformer")
  transformer = listed[0][1]
  if config_file(transformer) is None:
    raise InputError(f"{transformer}: the transformer that {folder / MODULES} names has no config")
  return transformer


def named_prompts(folder: epath.Path) -> tuple[dict[str, str], str]:
  """Reads the prompts of a folder by name, and the default one, or ""."""
  file = folder / SETTINGS
  settings = _json(file, dict) if file.exists() else {}
  prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
  if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
    raise InputError(f"{file}: prompts is {prompts!r:.80}; expected texts by name")
  if default is not None and default not in prompts:
    raise InputError(
      f"{file}: default_prompt_name is {default!r:.80}, which is none of its prompts"
    )
  return prompts, prompts.get(default, "")


def _prompts(folder: epath.Path) -> tuple[str, str]:
  """What a bi-encoder's folder puts before questions and before candidates.

  A side without a prompt of its own has the default one, as `SentenceTransformer.encode` does. (From
  release 5 on, the library's `encode_query` and `encode_document` take an empty prompt instead where a
  folder of an older release states no `query` or `document`; folders of new releases state both.)
  """
  prompts, default = named_prompts(folder)
  first = lambda names: next((prompts[name] for name in names if name in prompts), default)
  return first(QUERY_PROMPTS), first(DOCUMENT_PROMPTS)


def read_pooling(folder: epath.Path, *, prompted: bool) -> tuple[int, tuple[str, ...]]:
  """Reads the width of the joined vector, and our names of the modes.

  Args:
    prompted: whether texts have prompts, which a pooling may leave out (not implemented).

  """
  file = folder / "config.json"
  config = _json(file, dict)
  if prompted and not config.get("include_prompt", True):
    raise InputError(
      f"{file}: include_prompt is false; a pooling that leaves the prompt's tokens out is not "
      "implemented"
    )
  modes = config.get("pooling_mode")
  if modes is None:
    modes = [mode for flag, mode in FLAGS.items() if config.get(flag)] or ["mean"]
  modes = [modes] if isinstance(modes, str) else list(modes)
  unknown = [mode for mode in modes if mode not in POOLINGS]
  for key, value in config.items():
    if key.startswith("pooling_mode_") and key not in FLAGS and value:
      unknown.append(key)
  if unknown:
    raise InputError(f"{file}: pooling mode {unknown[0]!r} is none of {', '.join(POOLINGS)}")
  width = config.get("embedding_dimension", config.get("word_embedding_dimension"))
  if not isinstance(width, int):
    raise InputError(f"{file}: the key 'word_embedding_dimension' is missing")
  return width * len(modes), tuple(POOLINGS[mode] for mode in modes)


def read_dense(
  folder: epath.Path, width: int, output: str = SENTENCE
) -> tuple[Dense, dict[str, np.ndarray], int]:
  """Reads a dense layer on vectors of `width`: what it is, {kernel, bias}, and its size.

  Args:
    output: the library's name of what the layer gives.

  """
  file = folder / "config.json"
  config = check_vector(file, output=output)
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
  wanted: dict[str, tuple[int, ...]] = {"linear.weight": (size, width)}
  if bias:
    wanted["linear.bias"] = (size,)
  shapes = {name: tensor.shape for name, tensor in tensors.items()}
  if shapes != wanted:
    raise InputError(f"{source}: holds {shapes}, {file} asks for {wanted}")
  arrays = {"kernel": np.asarray(tensors["linear.weight"].T, np.float32)}
  if bias:
    arrays["bias"] = np.asarray(tensors["linear.bias"], np.float32)
  return (size, ACTIVATIONS[activation], bias), arrays, size


def check_vector(
  file: epath.Path, optional: bool = False, output: str = SENTENCE
) -> dict[str, Any]:
  """Reads the config of a module that must work on the sentence's vector, not on those of tokens."""
  config = {} if optional and not file.exists() else _json(file, dict)
  for key, only in (("module_input_name", SENTENCE), ("module_output_name", output)):
    if config.get(key, only) not in (None, only):
      raise InputError(f"{file}: {key} is {config[key]!r}; only {only!r} is implemented here")
  return config


def _transformer_settings(folder: epath.PathLike) -> dict[str, Any]:
  """What the library's own file in a transformer's folder says; {} where there is none.

  Errors: `InputError` for one of `NOT_READ`.
  """
  files = sorted(epath.Path(folder).glob("sentence_*_config.json"))
  settings = _json(files[0], dict) if files else {}
  for key in NOT_READ:
    if settings.get(key):
      raise InputError(
        f"{files[0]}: {key} is {settings[key]!r:.80}; implemented is one length for all texts, "
        "max_seq_length, and the tokeniser as it is"
      )
  return settings


def lower_case(folder: epath.PathLike) -> bool:
  """Says whether a transformer's folder has texts lower-cased before the tokeniser."""
  return bool(_transformer_settings(folder).get("do_lower_case", False))


def max_length(folder: epath.PathLike) -> int | None:
  """Returns the longest text, or pair of texts, in tokens, as a transformer's folder states it.

  Without a statement it is the tokeniser's limit; transformers writes 1e30 for none.
  """
  length = _transformer_settings(folder).get("max_seq_length")
  file = epath.Path(folder) / "tokenizer_config.json"
  if length is None and file.exists():
    length = _json(file, dict).get("model_max_length")
  return int(length) if length is not None and length < 2**31 else None


def similarity(folder: epath.PathLike) -> str | None:
  """Returns the library's name of the function that compares two vectors, as the folder states it."""
  file = epath.Path(folder) / SETTINGS
  return _json(file, dict).get("similarity_fn_name") if file.exists() else None


def stated(folder: epath.PathLike) -> dict[str, Any]:
  """Reads what a folder says of texts beside its tokeniser, which an encoder alone does not follow.

  Returns:
    Of `max_seq_length`, `do_lower_case` and `prompts` (before questions and before candidates) those
    that it states.

  """
  folder = epath.Path(folder)
  try:
    settings, prompts = _transformer_settings(folder), _prompts(folder)
  except InputError:  # of a module that is not implemented: an encoder alone needs none
    return {}
  found = {key: settings.get(key) for key in ("max_seq_length", "do_lower_case")}
  found["prompts"] = prompts if any(prompts) else None
  return {key: value for key, value in found.items() if value}


def say_unread(stated: Mapping[str, Any], config: Any) -> None:
  """Logs what an encoder's folder says of its texts, and what the run of `config` does not follow."""
  own, length = config.encoder["name"] in PUBLISHED, config.data.max_length
  said = {k: v for k, v in stated.items() if k != "prompts" or not config.data.prompts}
  longest = said.pop("max_seq_length", None)
  lines = [f"{key} = {value!r}" for key, value in said.items()]
  if longest and (length > longest or own and length < longest):
    lines.append(f"max_seq_length = {longest} (data.max_length = {length})")
  if lines:
    log.info(
      "%s: its folder says %s, which this run does not follow%s",
      config.encoder["pretrained"],
      ", ".join(lines),
      "" if own else "; encoder.name = sentence_bert, as --recipe=embedder has it, does",
    )


def _json(file: epath.Path, kind: type) -> Any:
  content = read_json(file)
  if not isinstance(content, kind):
    raise InputError(f"{file}: holds no JSON {'object' if kind is dict else 'list'}")
  return content


def write_sentence_modules(
  folder: epath.PathLike,
  *,
  width: int,
  fields: Mapping[str, Any],
  params: Mapping[str, np.ndarray],
  max_length: int,
  lower_case: bool,
  similarity: str,
  version: str,
  prompts: Sequence[str] = ("", ""),
) -> None:
  """Writes all of a sentence-transformers folder but the transformer, which lies at its root.

  Args:
    width: of the transformer's token vectors.
    fields, params, lower_case: as in `SentenceFolder`.
    max_length: tokens of a text, special tokens included.
    similarity: the library's name of the function that compares two vectors: cosine or euclidean.
    version: of as2jax.
    prompts: before questions and before candidates.

  """
  layers = []
  for number, dense in enumerate(fields["dense"]):
    leaves = {leaf: params.get(f"dense_{number}/{leaf}") for leaf in ("kernel", "bias")}
    layers.append((("dense", *dense), leaves))
  if fields["normalize"]:
    layers.append((("normalize",), {}))
  text = {"max_seq_length": max_length, "do_lower_case": lower_case}
  write_modules(folder, width=width, pooling=fields["pooling"], layers=layers, settings=text)
  named = dict(zip(("query", "document"), prompts)) if any(prompts) else {}
  write_settings(folder, version=version, prompts=named, similarity=similarity)


def write_modules(
  folder: epath.PathLike,
  *,
  settings: Mapping[str, Any],
  width: int = 0,
  pooling: Sequence[str] = (),
  layers: Sequence[tuple[tuple, Mapping[str, Any]]] = (),
  output: str = SENTENCE,
) -> None:
  """Writes the list of modules, each module behind the transformer, and the texts' settings.

  Args:
    settings: of the file beside the transformer.
    width: of the transformer's token vectors.
    pooling: our modes; none where no module is behind the transformer.
    layers: of `as2jax.layers.vectors` with their parameters by leaf.
    output: the library's name of what the last dense layer gives.

  """
  folder = epath.Path(folder)
  listed = [("", "Transformer")]
  if pooling:
    listed.append(("1_Pooling", "Pooling"))
    names = {ours: theirs for theirs, ours in POOLINGS.items()}
    config = _pooling_config(width, [names[mode] for mode in pooling])
    write_json(folder / "1_Pooling" / "config.json", config)
    width *= len(pooling)
  for number, (layer, leaves) in enumerate(layers):
    kind = {"dense": "Dense", "norm": "LayerNorm", "normalize": "Normalize"}[layer[0]]
    path = f"{number + 2}_{kind}"
    listed.append((path, kind))
    if kind == "Dense":
      named = output if number == len(layers) - 1 else SENTENCE
      width = _write_dense(folder / path, layer[1:], leaves, width, named)
    elif kind == "LayerNorm":
      write_json(folder / path / "config.json", {"dimension": width})
      bias = leaves.get("bias", np.zeros(width, np.float32))
      weights.write_tensors({"norm.weight": leaves["scale"], "norm.bias": bias}, folder / path)
    else:
      (folder / path).mkdir()
  entries = []
  for i, (path, kind) in enumerate(listed):
    kind = f"sentence_transformers.models.{kind}"
    entries.append({"idx": i, "name": str(i), "path": path, "type": kind})
  write_json(folder / MODULES, entries)
  write_json(folder / TRANSFORMER_CONFIG, dict(settings))


def write_settings(
  folder: epath.PathLike,
  *,
  version: str,
  prompts: Mapping[str, str],
  similarity: str | None = None,
  cross_encoder: bool = False,
  activation: bool = True,
) -> None:
  """Writes the library's settings; of a cross-encoder, the one prompt is that of every pair.

  Args:
    activation: whether they state the sigmoid of its scores; else the transformer's config does.

  """
  content: dict[str, Any] = {"__version__": {"as2jax": version}, "prompts": dict(prompts)}
  content["default_prompt_name"] = next(iter(prompts), None) if cross_encoder else None
  if cross_encoder:
    content["model_type"] = "CrossEncoder"
    if activation:
      content["activation_fn"] = "torch.nn.modules.activation.Sigmoid"
  else:
    content["similarity_fn_name"] = similarity
  write_json(epath.Path(folder) / SETTINGS, content)


def _write_dense(
  path: epath.Path, layer: tuple, leaves: Mapping[str, Any], width: int, output: str
) -> int:
  """Writes a dense layer on vectors of `width`; returns the width of what it gives."""
  size, activation, bias = layer
  names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
  config = {
    "in_features": width,
    "out_features": size,
    "bias": bias,
    "activation_function": names[activation],
  }
  if output != SENTENCE:  # older releases do not know the key
    config |= {"module_input_name": SENTENCE, "module_output_name": output}
  write_json(path / "config.json", config)
  tensors = {"linear.weight": np.asarray(leaves["kernel"]).T}
  if bias:
    tensors["linear.bias"] = np.asarray(leaves["bias"])
  weights.write_tensors(tensors, path)
  return size


def _pooling_config(width: int, modes: Sequence[str]) -> dict[str, Any]:
  """Flags, which every release reads; a list, which new ones do, where flags lose the order."""
  if list(modes) == [mode for mode in POOLINGS if mode in modes]:
    flags = {flag: mode in modes for flag, mode in FLAGS.items()}
    return {"word_embedding_dimension": width, **flags, "include_prompt": True}
  return {"embedding_dimension": width, "pooling_mode": list(modes), "include_prompt": True}
