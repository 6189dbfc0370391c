"""Tensors by name from a folder's weight files: safetensors, torch's or TensorFlow's."""

import json
import os
import re
from collections.abc import Callable, Collection
from typing import Literal

import ml_dtypes
import numpy as np
from etils import epath

from as2jax.encoders.checkpoints import git_lfs, tensorflow_checkpoint, torch_pickle
from as2jax.runtime.errors import InputError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TORCH_WEIGHTS, TORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
TENSORFLOW_INDEXES = ("*.ckpt.index", "model.ckpt-*.index")
# In the order of preference; the first that a folder has is read.
FILES = {WEIGHTS: "safetensors", INDEX: "safetensors", TORCH_WEIGHTS: "torch", TORCH_INDEX: "torch"}
# safetensors finds bfloat16 by its name once ml_dtypes has registered it with numpy, as here.
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SAFETENSORS_DTYPES = frozenset("F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL".split())
# What a checkpoint made in training holds beside the weights: BERT's own optimiser, Adam's, steps.
OPTIMIZER = re.compile(r"(.*/)?(adam_[mv]|Adam(_1)?|beta[12]_power|global_step)")

Format = Literal["safetensors", "torch", "tensorflow"]


def format_of(folder: epath.PathLike) -> Format:
  """The format of the weights that `read_tensors` reads from a folder; errors as there."""
  return _find(epath.Path(folder))[0]


def read_tensors(
  folder: epath.PathLike,
  rename: Callable[[str], str] = lambda name: name,
  keep: Collection[str] | None = None,
) -> tuple[dict[str, np.ndarray], str]:
  """A folder's tensors under the names that `rename` gives, and the file to name in errors.

  `keep` limits them to those (renamed) tensors, and only these are loaded. Read is the first that
  is there of `model.safetensors`, several safetensors with an index, `pytorch_model.bin`, several
  of these with an index, and a TensorFlow checkpoint, whose names are TensorFlow's
  ("bert/encoder/layer_0/...") and whose optimiser variables are left out. Dtypes are the file's,
  but bfloat16 becomes float32.

  Errors: `InputError` where no weights lie there, or more than one TensorFlow checkpoint; for a
  git-LFS pointer in their place, a file that is not whole, a pickle that holds more than tensors,
  an index that names a file or tensor that is not there, two tensors of one (new) name, and a
  tensor with a number that is not finite in float32.
  """
  folder = epath.Path(folder)
  file_format, file = _find(folder)
  wanted = _Wanted(rename, keep, without_optimizer=file_format == "tensorflow")
  if file_format == "tensorflow":
    prefix = file.parent / file.name.removesuffix(".index")
    tensors = check_finite(tensorflow_checkpoint.read(prefix, wanted), file)
  else:
    format_reader = torch_pickle.read if file_format == "torch" else _read_safetensors
    read = lambda file, wanted: check_finite(format_reader(file, wanted), file)
    sharded = file.name in (INDEX, TORCH_INDEX)
    tensors = _read_sharded(file, read, wanted) if sharded else read(file, wanted)
  return _renamed(tensors, rename, file), str(file)


def check_finite(tensors: dict[str, np.ndarray], file: epath.PathLike) -> dict[str, np.ndarray]:
  """`tensors`, if all of their numbers are finite in float32, in which they are used.

  Raises:
    InputError: one is not; it names `file`, the tensor and where in it the first such number is.

  """
  for name, tensor in tensors.items():
    if tensor.dtype.kind in "iub":
      continue
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


class _Wanted:
  """The names in a file that become one of `keep`."""

  def __init__(self, rename, keep, without_optimizer):
    self.rename, self.keep, self.without_optimizer = rename, keep, without_optimizer

  def __contains__(self, name: str) -> bool:
    if self.without_optimizer and OPTIMIZER.fullmatch(name):
      return False
    return self.keep is None or self.rename(name) in self.keep


def _find(folder: epath.Path) -> tuple[Format, epath.Path]:
  """The format of a folder's weights and the one file, or the index of the several."""
  for name, file_format in FILES.items():
    if (folder / name).exists():
      return file_format, folder / name
  indexes = {file.name for pattern in TENSORFLOW_INDEXES for file in folder.glob(pattern)}
  if len(indexes) > 1:
    raise InputError(
      f"{folder}: several TensorFlow checkpoints ({', '.join(sorted(indexes))}); leave only the "
      "one to read"
    )
  if not indexes:
    looked_for = ", ".join((*list(FILES)[1:], *TENSORFLOW_INDEXES[:-1]))
    raise InputError(
      f"{folder}: neither {WEIGHTS} nor {looked_for} or {TENSORFLOW_INDEXES[-1]} is there; put the "
      "weights there in one of these forms"
    )
  return "tensorflow", folder / indexes.pop()


def _read_sharded(index: epath.Path, read, wanted: _Wanted) -> dict[str, np.ndarray]:
  """The tensors of the files that Hugging Face's index names, each in the file it promises."""
  try:
    git_lfs.refuse_pointer(index)
    places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    for file in places.values():
      if not isinstance(file, str) or not re.fullmatch(r"[\w.-]*\w", file):
        raise ValueError(f"{file!r} is not the name of a file beside it")
  except InputError:
    raise
  except OSError as error:
    raise InputError(f"{index}: cannot be read ({error.strerror or error})") from None
  except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
    raise InputError(f"{index}: not an index of weight files ({error!r:.200})") from None
  tensors = {}
  for file in sorted({file for name, file in places.items() if name in wanted}):
    for name, tensor in read(index.parent / file, wanted).items():
      if name in tensors:
        raise InputError(f"{index.parent / file}: the tensor {name!r} is in another file as well")
      tensors[name] = tensor
  for name, file in places.items():
    if name in wanted and name not in tensors:
      raise InputError(f"{index}: the tensor {name!r} is not in {file}")
  return tensors


def _renamed(
  tensors: dict[str, np.ndarray], rename: Callable[[str], str], file: epath.Path
) -> dict[str, np.ndarray]:
  named: dict[str, np.ndarray] = {}
  olds: dict[str, str] = {}
  for old, tensor in tensors.items():
    new = rename(old)
    if new in named:
      raise InputError(f"{file}: the tensors {olds[new]!r} and {old!r} are both {new!r} here")
    named[new], olds[new] = tensor, old
  return named


def _read_safetensors(file: epath.Path, wanted: _Wanted) -> dict[str, np.ndarray]:
  import safetensors

  try:
    git_lfs.refuse_pointer(file)
    tensors = {}
    with safetensors.safe_open(os.fspath(file), framework="np") as reader:
      for name in reader.keys():
        if name in wanted:
          dtype = reader.get_slice(name).get_dtype()
          if dtype not in SAFETENSORS_DTYPES:
            raise InputError(
              f"{file}: the tensor {name!r} is {dtype}; of floats F64, F32, F16, BF16 are read"
            )
          tensor = reader.get_tensor(name)
          tensors[name] = tensor.astype(np.float32) if tensor.dtype == BFLOAT16 else tensor
    return tensors
  except OSError as error:
    raise InputError(f"{file}: cannot be read ({error.strerror or error})") from None
  except safetensors.SafetensorError as error:
    raise InputError(
      f"{file}: not a whole safetensors file ({error}); fetch or copy it again"
    ) from None
