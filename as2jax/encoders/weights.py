"""Weights of encoders: files of tensors, and tensors as parameters and back.

Read are safetensors, and pickles by torch.
"""

import logging
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from etils import epath
from flax import traverse_util

from as2jax.data.batches.batch import Tokens
from as2jax.encoders import family as families
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object, refuse_others

log = logging.getLogger(__name__)

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TORCH_WEIGHTS, TORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
FILES = (WEIGHTS, INDEX, TORCH_WEIGHTS, TORCH_INDEX)  # the first that a folder has is read
Wanted = Callable[[str], bool]


def read_tensors(
  folder: epath.PathLike,
  rename: Callable[[str], str] = lambda name: name,
  keep: Collection[str] | None = None,
) -> tuple[dict[str, np.ndarray], str]:
  """Reads a folder's tensors, and returns them with the file to name in errors.

  The first of `FILES` that is there is read. Dtypes are the file's, but bfloat16 becomes float32.

  Raises InputError: no weights, a file that is not whole, a pickle of anything but tensors, an
  index that names a file or tensor that is not there, or a number that is not finite in float32.

  Args:
    rename: gives the name under which a tensor is returned.
    keep: the (renamed) tensors to load; None for all.

  """
  file = find_weights(folder)
  wanted = lambda name: keep is None or rename(name) in keep
  if file.name in (INDEX, TORCH_INDEX):
    tensors = _read_shards(file, wanted)
  else:
    tensors = read_file(file, wanted)
  return {rename(name): tensor for name, tensor in tensors.items()}, str(file)


def find_weights(folder: epath.PathLike) -> epath.Path:
  """Returns the file of a folder's weights, or the index of several files; InputError for none."""
  folder = epath.Path(folder)
  for name in FILES:
    if (folder / name).exists():
      return folder / name
  if list(folder.glob("*ckpt*.index")):
    raise InputError(
      f"{folder}: TensorFlow checkpoints are not read; convert it with transformers 4 and "
      f"TensorFlow (from_pretrained(…, from_tf=True), then save_pretrained), which writes {WEIGHTS}"
    )
  raise InputError(f"{folder}: no weights here; put one of {', '.join(FILES)} into it")


def read_file(file: epath.PathLike, wanted: Wanted = lambda name: True) -> dict[str, np.ndarray]:
  """Reads the `wanted` tensors of a safetensors file or, by any other name, of torch's pickle."""
  file = epath.Path(file)
  refuse_others(file)
  read = _read_safetensors if file.suffix == ".safetensors" else _read_pickle
  try:
    tensors = read(file, wanted)
  except InputError:
    raise
  except OSError as error:
    raise InputError(f"{file}: cannot be read ({error.strerror or error})") from None
  except Exception as error:  # both libraries raise errors of many kinds on what they cannot read
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    raise InputError(
      f"{file}: not a whole file of tensors alone ({reason:.200}); fetch or copy it again"
    ) from None
  return check_finite(tensors, file)


def check_finite(tensors: dict[str, np.ndarray], file: epath.PathLike) -> dict[str, np.ndarray]:
  """Returns `tensors` if all their numbers are finite in float32; InputError names `file` and place."""
  for name, tensor in tensors.items():
    with np.errstate(over="ignore"):
      finite = np.isfinite(tensor.astype(np.float32, copy=False))
    if not finite.all():
      place = np.argwhere(~finite)
      raise InputError(
        f"{file}: the tensor {name!r} holds {len(place)} of {tensor.size} numbers that are not "
        f"finite in float32, the first, {tensor[tuple(place[0])]}, at {place[0].tolist()}: these "
        "weights are damaged, or their training diverged; take others"
      )
  return tensors


def _read_shards(index: epath.Path, wanted: Wanted) -> dict[str, np.ndarray]:
  """Reads the tensors of the files that Hugging Face's index names, each from its file."""
  advice = "get it again: its `weight_map` must give each tensor's file beside it"
  places = read_object(index, advice).get("weight_map")
  if not isinstance(places, dict):
    raise InputError(f"{index}: not an index of weight files; {advice}")
  places = {name: epath.Path(str(file)).name for name, file in places.items() if wanted(name)}
  tensors: dict[str, np.ndarray] = {}
  for file in sorted(set(places.values())):
    for name, tensor in read_file(index.parent / file, wanted).items():
      if name not in places:
        raise InputError(f"{index}: the tensor {name!r} of {file} has no place in it; {advice}")
      if places[name] == file:
        tensors[name] = tensor
  for name in places.keys() - tensors.keys():
    raise InputError(f"{index}: the tensor {name!r} is not in {places[name]}")
  return tensors


def _read_safetensors(file: epath.Path, wanted: Wanted) -> dict[str, np.ndarray]:
  import safetensors

  tensors = {}
  with safetensors.safe_open(os.fspath(file), framework="np") as reader:
    for name in filter(wanted, reader.keys()):
      tensor = reader.get_tensor(name)
      # safetensors finds bfloat16 by its name, which ml_dtypes registers with numpy.
      half = tensor.dtype == ml_dtypes.bfloat16
      tensors[name] = tensor.astype(np.float32) if half else tensor
  return tensors


def _read_pickle(file: epath.Path, wanted: Wanted) -> dict[str, np.ndarray]:
  """Reads a state dict by `torch.load(weights_only=True)`, which runs no code of the file."""
  try:
    import torch
  except ImportError:
    raise InputError(
      f"{file}: a pickle is read by torch, which is not installed; `pip install "
      f"'as2jax[pickles]'` (or torch's CPU build), or give the weights as {WEIGHTS}"
    ) from None
  state = torch.load(os.fspath(file), map_location="cpu", weights_only=True)
  tensors = {}
  for name in filter(wanted, state):
    value = state[name].detach()
    tensors[name] = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
  return tensors


def write_tensors(tensors: Mapping[str, np.ndarray], folder: epath.PathLike) -> None:
  """Writes float32 tensors beside the folder's `config.json`, readable by whoever may read that."""
  from safetensors.numpy import save_file

  folder = epath.Path(folder)
  arrays = {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}
  save_file(arrays, str(folder / WEIGHTS), metadata={"format": "pt"})
  shutil.copymode(folder / "config.json", folder / WEIGHTS)


def flat(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a parameter tree by path."""
  return traverse_util.flatten_dict(params, sep="/")


def shapes(encoder: Any) -> dict[str, Any]:
  """Returns the shape and type of each parameter of `encoder`, by path."""
  import jax
  import jax.numpy as jnp

  none = jnp.zeros((1, 1, 16), jnp.int32)  # as many tokens as any attention takes
  tokens = Tokens(none, none, none, none, none)
  init = lambda seed: encoder.init(jax.random.key(seed), tokens, train=False)["params"]
  return flat(jax.eval_shape(init, 0))


def from_tensors(tensors: Mapping[str, np.ndarray], encoder: Any, source: str) -> dict[str, Any]:
  """Returns transformers' tensors as the `params` of `encoder`, float32.

  InputError for a missing, unknown or misshapen tensor; it names their file, `source`.
  """
  family = families.of(encoder)
  left = dict(tensors)
  params = {}
  for path, spec in shapes(encoder).items():
    layers, shape = 1, spec.shape
    if "{}" in family.names[path]:
      layers, *shape = spec.shape
    wanted = family.theirs(path, np.broadcast_to(np.float32(0), shape), encoder.num_heads).shape
    parts = []  # the array is made when all are known to be there: the config might ask for any size
    for layer in range(layers):
      name = family.names[path].format(layer + family.first_stacked)
      tensor = left.pop(name, None)
      if tensor is None or tensor.shape != wanted:
        found = "missing" if tensor is None else list(tensor.shape)
        raise InputError(f"{source}: the tensor {name!r} is {found}, not {list(wanted)}")
      parts.append(family.ours(path, tensor))
    params[path] = np.empty(spec.shape, np.float32)
    np.stack(parts, out=params[path].reshape(layers, *shape), casting="unsafe")
  unknown = sorted(name for name in left if not family.ignored.fullmatch(name))
  if unknown:
    raise InputError(
      f"{source}: the tensor {unknown[0]!r} {list(left[unknown[0]].shape)} ({len(unknown)} such) has "
      f"no place in a {family.name} encoder of {encoder.num_layers} layers"
    )
  if left:
    log.debug("%s: not part of the encoder, ignored: %s", source, ", ".join(sorted(left)))
  return traverse_util.unflatten_dict(params, sep="/")


def to_tensors(
  params: Mapping[str, Any], encoder: Any, pooler: Mapping[str, Any] | None = None
) -> dict[str, np.ndarray]:
  """Returns the `params` of `encoder` as transformers' tensors, float32 (inverts `from_tensors`).

  `pooler` {kernel, bias} is the layer that BERT has on its first token.
  """
  family = families.of(encoder)
  tensors = {}
  for path, value in flat(params).items():
    value = np.asarray(value, np.float32)
    if "{}" not in family.names[path]:
      value = value[None]
    for layer, part in enumerate(value):
      name = family.names[path].format(layer + family.first_stacked)
      tensors[name] = family.theirs(path, part, encoder.num_heads)
  for leaf, value in (pooler or {}).items():
    value = np.asarray(value, np.float32)
    tensors[family.pooler[leaf]] = value.T  # a bias is its own transpose
  return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
