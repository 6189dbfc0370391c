"""Tensors by name from a folder's weight files."""

import json
import os
from collections.abc import Callable, Collection

import numpy as np
from etils import epath

from as2jax.errors import InputError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
LFS_POINTER = b"version https://git-lfs"


def read_tensors(
  folder: epath.PathLike,
  rename: Callable[[str], str] = lambda name: name,
  keep: Collection[str] | None = None,
) -> tuple[dict[str, np.ndarray], str]:
  """A folder's safetensors under the names that `rename` gives, and the file to name in errors.

  `keep` limits it to those (renamed) tensors. The weights are one file, or several with an index.

  Errors: `InputError` where no weights lie there, for a git-LFS pointer in their place, a file that
  is not whole, and an index that names a file or tensor that is not there.
  """
  folder = epath.Path(folder)
  if (folder / WEIGHTS).exists():
    whole = folder / WEIGHTS
    return _read_file(whole, rename, keep), str(whole)
  index = folder / INDEX
  if not index.exists():
    raise InputError(
      f"{folder}: neither {WEIGHTS} nor {INDEX} is there; weights in another format "
      "(pytorch_model.bin) must be saved as safetensors first"
    )
  try:
    places = json.loads(index.read_text())["weight_map"]
    files = sorted(set(places.values()))
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise InputError(f"{index}: not an index of safetensors files ({error!r})") from None
  tensors = {}
  for name in files:
    tensors |= _read_file(folder / name, rename, keep)
  for name, file in places.items():
    if keep is None and rename(name) not in tensors:
      raise InputError(f"{index}: the tensor {name!r} is not in {file}")
  return tensors, str(index)


def _read_file(file, rename, keep) -> dict[str, np.ndarray]:
  import safetensors

  try:
    with file.open("rb") as stream:
      if stream.read(len(LFS_POINTER)) == LFS_POINTER:
        raise InputError(f"{file}: a git-LFS pointer, not the weights; run `git lfs pull` there")
    tensors = {}
    with safetensors.safe_open(os.fspath(file), framework="np") as reader:
      for name in reader.keys():
        if keep is None or rename(name) in keep:
          tensors[rename(name)] = reader.get_tensor(name)
    return tensors
  except OSError as error:
    raise InputError(f"{file}: cannot be read ({error.strerror or error})") from None
  except safetensors.SafetensorError as error:
    raise InputError(
      f"{file}: not a whole safetensors file ({error}); fetch or copy it again"
    ) from None
