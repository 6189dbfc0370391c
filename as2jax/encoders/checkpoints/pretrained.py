"""Published transformer weights: read a folder's config, map tensors to parameters and back.

The config is read as JSON rather than by transformers' `AutoConfig`, which puts BERT-base's value in
place of each key that is missing ({"model_type": "bert"} gets a vocab_size of 30522).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging
from etils import epath
from flax import traverse_util

from as2jax.data.batches.batch import Tokens
from as2jax.data.text import vocabulary
from as2jax.data.text.tokenizer import Tokenizer
from as2jax.encoders.checkpoints import config_values, families
from as2jax.encoders.checkpoints.families import FAMILIES, Family
from as2jax.encoders.checkpoints.folders import CONFIG, config_file, resolve
from as2jax.encoders.checkpoints.weights import read_tensors
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json

__all__ = [
  "check_vocabulary",
  "from_tensors",
  "load_params",
  "load_pooler",
  "read_config",
  "read_family",
  "resolve",
  "to_tensors",
]

ALIASES = {"xlm-roberta": "roberta"}  # the same architecture, with a tokeniser of its own
PADDING = 128  # rows: what tables are padded to is a multiple of 8 to 128


def read_family(folder: epath.PathLike) -> tuple[Family, dict[str, Any]]:
  """The family of the encoder in `folder` and the encoder's fields, as its config states them.

  Errors: `InputError` for another model type, a missing key, a value that is of no use or beyond
  any sense (`config_values`), or a variant that is not implemented.
  """
  file, config = _config(folder)
  kind = config.get("model_type")
  kind = ALIASES.get(kind, kind) if isinstance(kind, str) else kind
  if not isinstance(kind, str) or kind not in FAMILIES:
    raise InputError(f"{file}: model_type is {kind!r:.80}; known are {', '.join(FAMILIES)}")
  try:
    config_values.check(kind, config)
    return FAMILIES[kind], FAMILIES[kind].fields(config)
  except ValueError as error:
    raise InputError(f"{file}: {error}") from None


def _config(folder: epath.PathLike) -> tuple[epath.Path, dict[str, Any]]:
  """A folder's config, and the file that it is in."""
  file = config_file(folder)
  if file is None:
    raise InputError(f"{folder}: there is no {CONFIG}")
  config = read_json(file)
  if not isinstance(config, dict):
    raise InputError(f"{file}: holds no JSON object")
  return file, config


def check_vocabulary(tokenizer: Tokenizer, folder: epath.PathLike) -> Tokenizer:
  """`tokenizer`, which is that of `folder`, if its ids are 0 … `vocab_size` − 1 of the config.

  In most files an id is a line's number: where a line is lost, each word after it takes another
  word's vector, and nothing but this number tells. A table may be longer than its vocabulary only
  where the end of the vocabulary is known: `tokenizer.json` gives ids, and either its largest id is
  that of an added token and fewer than `PADDING` rows follow (multilingual MiniLM has 35), or the
  config states `pad_vocab_size_multiple`, and the vocabulary ends within the last multiple.

  Raises:
    InputError: another number of entries, or an id that is not there; it names both files.

  """
  folder = epath.Path(folder)
  file, config = _config(folder)
  rows = read_config(folder)["vocab_size"]
  ids = tokenizer.ids()
  entries, largest = len(ids), max(ids)
  if entries == largest + 1 == rows:
    return tokenizer
  words = folder / vocabulary.file_of(folder)
  if entries == largest + 1 < rows and words.name == "tokenizer.json":
    multiple = config.get("pad_vocab_size_multiple")
    stated = isinstance(multiple, int) and multiple > 0 and -entries % multiple == rows - entries
    if (
      stated
      or rows - entries < PADDING
      and vocabulary.ends_as_declared(folder, tokenizer.backend, largest)
    ):
      logging.info(
        "%s: the last %d of %d rows of the table are padding", file, rows - entries, rows
      )
      return tokenizer
  raise InputError(
    f"{words}: the vocabulary has {entries} ids, the largest {largest}, but {file} says "
    f"vocab_size = {rows}, so that words would take other words' vectors; has {words.name} lost or "
    "doubled a line, or is it another encoder's? Get the files of this very encoder again"
  )


def read_config(folder: epath.PathLike) -> dict[str, Any]:
  """The encoder's fields of `read_family`."""
  return read_family(folder)[1]


def load_params(folder: epath.PathLike, encoder: Any) -> dict[str, Any]:
  """The `params` collection of `encoder` from a folder's weights, as float32 numpy arrays.

  Tensors of the family's `ignored` are left out and logged. Errors: `InputError` for a missing,
  unknown or misshapen tensor (with both shapes) and for a file that is not whole.
  """
  family = families.of(encoder)
  tensors, source = read_tensors(folder, family.today)
  return from_tensors(tensors, encoder, source)


def load_pooler(
  folder: epath.PathLike, family: Family = families.BERT
) -> dict[str, np.ndarray] | None:
  """The pooler's dense layer {kernel [d, d], bias [d]}, or None where the folder has none."""
  if not family.pooler:
    return None
  tensors, source = read_tensors(folder, family.today, keep=family.pooler.values())
  if not tensors:
    return None
  for name in family.pooler.values():
    if name not in tensors:
      raise InputError(f"{source}: half of the pooler is there, the tensor {name!r} is missing")
  return {
    leaf: np.asarray(tensors[name].T if leaf == "kernel" else tensors[name], np.float32)
    for leaf, name in family.pooler.items()
  }


def shapes(encoder: Any) -> dict[str, Any]:
  """The shape and type of each parameter of `encoder`, by path."""
  import jax

  return _flat(jax.eval_shape(_initialise(encoder), 0))


def from_tensors(tensors: Mapping[str, np.ndarray], encoder: Any, source: str) -> dict[str, Any]:
  """Hugging Face tensors as the `params` of `encoder`; `source` names their file in errors."""
  family = families.of(encoder)
  left = dict(tensors)
  params = {}
  for path, spec in shapes(encoder).items():
    stacked = "{}" in family.names[path]
    shape = spec.shape[1:] if stacked else spec.shape
    wanted = family.theirs(path, np.broadcast_to(np.float32(0), shape), encoder.num_heads).shape
    parts = []  # the array is made when all are known to be there: the config might ask for any size
    for layer in range(spec.shape[0] if stacked else 1):
      name = family.names[path].format(layer + family.first_stacked)
      if name not in left:
        raise InputError(f"{source}: the tensor {name!r} {list(wanted)} is missing")
      tensor = left.pop(name)
      if tensor.shape != wanted:
        raise InputError(
          f"{source}: the tensor {name!r} has shape {list(tensor.shape)}, the config asks "
          f"for {list(wanted)}"
        )
      parts.append(family.ours(path, tensor))
    value = params[path] = np.empty(spec.shape, np.float32)
    for layer, part in enumerate(parts):
      value[layer if stacked else ...] = part
  ignored = sorted(name for name in left if family.ignored.fullmatch(name))
  unknown = sorted(set(left) - set(ignored))
  if unknown:
    more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
    raise InputError(
      f"{source}: the tensor {unknown[0]!r} {list(left[unknown[0]].shape)}{more} has no place in "
      f"a {family.name} encoder of {encoder.num_layers} layers"
    )
  if ignored:
    logging.info("%s: not part of the encoder, ignored: %s", source, ", ".join(ignored))
  return traverse_util.unflatten_dict(params, sep="/")


def to_tensors(
  params: Mapping[str, Any],
  pooler: Mapping[str, Any] | None = None,
  *,
  family: Family = families.BERT,
  num_heads: int = 1,
) -> dict[str, np.ndarray]:
  """The inverse of `from_tensors`: parameters as the tensors of Hugging Face's model, float32.

  `num_heads` is read where tensors are written head by head (XLNet's).
  """
  tensors = {}
  for path, value in _flat(params).items():
    value = np.asarray(value, np.float32)
    parts = enumerate(value) if "{}" in family.names[path] else [(0, value)]
    for layer, part in parts:
      tensors[family.names[path].format(layer + family.first_stacked)] = family.theirs(
        path, part, num_heads
      )
  for leaf, value in (pooler or {}).items():
    value = np.asarray(value, np.float32)
    tensors[family.pooler[leaf]] = value.T if leaf == "kernel" else value
  return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def _initialise(encoder: Any):
  import jax
  import jax.numpy as jnp

  none = jnp.zeros((1, 1, 1), jnp.int32)
  tokens = Tokens(none, none, none, none, none)
  return lambda seed: encoder.init(jax.random.key(seed), tokens, train=False)["params"]


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
  return traverse_util.flatten_dict(tree, sep="/")
