"""Published ELMo weights: `options.json` and the HDF5 file beside it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import logging
from etils import epath
from flax import traverse_util

from as2jax.encoders.bilm import ACTIVATIONS
from as2jax.encoders.characters import NUM_CHARACTERS
from as2jax.encoders.checkpoints.weights import check_finite
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json, refuse_others

GROUPS = ("CNN", "RNN_0", "char_embed")  # what tells weights from other HDF5 files of a folder
MAX_PACKING = 8  # bytes of weights for a byte of file: compression does not save so much
_CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell/"
_EXPECTED = "an ELMo folder holds one options.json (or *_options.json) and one *.hdf5 of weights"


def load(folder: epath.PathLike) -> tuple[dict[str, Any], dict[str, Any]]:
  """The fields of `ElmoEncoder` that a folder's options state, and the parameters of the biLM.

  The fields `mix`, `unroll` and `precision`, and the parameters of a learned mix, are the user's.

  Errors: see `read_options` and `read_params`.
  """
  fields = read_options(folder)
  return fields, read_params(folder, fields)


def read_options(folder: epath.PathLike) -> dict[str, Any]:
  """The fields of `ElmoEncoder` that `options.json`, or the one `*_options.json`, states.

  Absent clips are none, absent skip connections and highways are none: so the original code has it.

  Errors: `InputError` for no or several such files, invalid JSON, a missing key, and a value that
  this encoder has no meaning for.
  """
  file = _options_file(epath.Path(folder))
  return fields_of(read_json(file), file)


def fields_of(options: dict[str, Any], file: epath.PathLike) -> dict[str, Any]:
  """The fields of `ElmoEncoder` that parsed options state; `file` is named in errors."""
  get = _Options(file, options)
  positive = lambda value: _is_int(value) and value > 0
  clip = lambda value: value is None or (_is_number(value) and value > 0)
  fields = {
    "num_characters": get(
      "char_cnn",
      "n_characters",
      lambda v: v == NUM_CHARACTERS,
      f"{NUM_CHARACTERS} (261 is what training has)",
    ),
    "character_dim": get("char_cnn", "embedding.dim", positive, "a positive integer"),
    "filters": get("char_cnn", "filters", _are_filters, "pairs of positive integers"),
    "max_characters": get(
      "char_cnn", "max_characters_per_token", lambda v: positive(v) and v > 2, "an integer above 2"
    ),
    "activation": get(
      "char_cnn",
      "activation",
      lambda v: v in tuple(ACTIVATIONS),
      "one of " + ", ".join(ACTIVATIONS),
    ),
    "num_highways": get(
      "char_cnn",
      "n_highway",
      lambda v: v is None or (_is_int(v) and v >= 0),
      "an integer",
      optional=True,
    )
    or 0,
    "num_layers": get("lstm", "n_layers", positive, "a positive integer"),
    "cell_size": get("lstm", "dim", positive, "a positive integer"),
    "projection_dim": get("lstm", "projection_dim", positive, "a positive integer"),
    "cell_clip": get("lstm", "cell_clip", clip, "a positive number", optional=True),
    "projection_clip": get("lstm", "proj_clip", clip, "a positive number", optional=True),
    "skip_connections": bool(
      get(
        "lstm",
        "use_skip_connections",
        lambda v: v in (None, True, False),
        "true or false",
        optional=True,
      )
    ),
  }
  if fields["projection_dim"] > fields["cell_size"]:
    raise InputError(
      f"{file}: lstm.projection_dim {fields['projection_dim']} is more than lstm.dim "
      f"{fields['cell_size']}; a projection makes the output smaller"
    )
  fields["filters"] = tuple((width, number) for width, number in fields["filters"])
  widest = max(width for width, _ in fields["filters"])
  if widest > fields["max_characters"]:
    raise InputError(
      f"{file}: a filter of {widest} characters does not fit into the "
      f"{fields['max_characters']} of char_cnn.max_characters_per_token"
    )
  return fields


def read_params(folder: epath.PathLike, fields: dict[str, Any]) -> dict[str, Any]:
  """The parameters of the biLM that `fields` describe, as float32 numpy arrays.

  They are read from the one HDF5 file of the folder that has the groups of an ELMo's weights;
  others, such as recorded embeddings, are passed over. A softmax over words is ignored and logged.

  Errors: `InputError` for no or several such files, a file that is not whole,
  for a missing, misshapen or unknown dataset, and for a number that is not finite.
  """
  file = _weights_file(epath.Path(folder))
  datasets = check_finite(_read(file), file)
  flat = {}
  for path, name, shape in _places(fields):
    if name not in datasets:
      raise InputError(f"{file}: the dataset {name!r} {list(shape)} is missing")
    value = datasets.pop(name)
    if value.shape != shape:
      raise InputError(
        f"{file}: the dataset {name!r} has shape {list(value.shape)}, the options ask for "
        f"{list(shape)}"
      )
    flat[path] = value
  ignored = sorted(name for name in datasets if name.startswith("softmax"))
  unknown = sorted(set(datasets) - set(ignored))
  if unknown:
    raise InputError(
      f"{file}: the dataset {unknown[0]!r} {list(datasets[unknown[0]].shape)} has no place in the "
      "biLM that the options describe"
    )
  if ignored:
    logging.info("%s: not part of the encoder, ignored: %s", file, ", ".join(ignored))
  return traverse_util.unflatten_dict(_ours(flat, fields["projection_dim"]), sep="/")


def _places(fields: dict[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
  """(our path, dataset, its shape); `kernels` of an LSTM are both of its kernels."""
  dim, p, c = fields["character_dim"], fields["projection_dim"], fields["cell_size"]
  yield "characters/embedding", "char_embed", (fields["num_characters"] - 1, dim)
  for i, (width, number) in enumerate(fields["filters"]):
    ours = f"characters/convolution_{i}/"
    yield ours + "kernel", f"CNN/W_cnn_{i}", (1, width, dim, number)
    yield ours + "bias", f"CNN/b_cnn_{i}", (number,)
  total = sum(number for _, number in fields["filters"])
  for i in range(fields["num_highways"]):
    for part in ("carry", "transform"):
      ours = f"characters/highway_{i}/{part}/"
      yield ours + "kernel", f"CNN_high_{i}/W_{part}", (total, total)
      yield ours + "bias", f"CNN_high_{i}/b_{part}", (total,)
  if total != p:
    yield "characters/projection/kernel", "CNN_proj/W_proj", (total, p)
    yield "characters/projection/bias", "CNN_proj/b_proj", (p,)
  for k in range(fields["num_layers"]):
    for number, direction in enumerate(("forward", "backward")):
      ours, theirs = f"layers_{k}/{direction}/", _CELL.format(number, k)
      yield ours + "kernels", theirs + "W_0", (2 * p, 4 * c)
      yield ours + "bias", theirs + "B", (4 * c,)
      if p < c:
        yield ours + "projection_kernel", theirs + "W_P_0", (c, p)


def _ours(flat: dict[str, np.ndarray], p: int) -> dict[str, np.ndarray]:
  params = {}
  for path, value in flat.items():
    if path.endswith("/kernels"):  # one product of [input; output] there
      stem = path.removesuffix("kernels")
      params[stem + "input_kernel"], params[stem + "recurrent_kernel"] = value[:p], value[p:]
    else:
      params[path] = value[0] if value.ndim == 4 else value
  return params


def _options_file(folder: epath.Path) -> epath.Path:
  if not folder.is_dir():
    raise InputError(f"{folder}: no such folder; {_EXPECTED}")
  if (folder / "options.json").exists():
    return folder / "options.json"
  return _only(folder, sorted(folder.glob("*_options.json")), "options.json and *_options.json")


def _weights_file(folder: epath.Path) -> epath.Path:
  files = []
  for file in sorted(folder.glob("*.hdf5")):
    names = _opened(file, lambda content: set(content))
    if names.issuperset(GROUPS):
      files.append(file)
  return _only(folder, files, f"*.hdf5 with {', '.join(GROUPS)}")


def _only(folder: epath.Path, files: list[epath.Path], what: str) -> epath.Path:
  if len(files) != 1:
    names = ", ".join(file.name for file in files) or "none"
    raise InputError(f"{folder}: of {what} there must be one, found {names}; {_EXPECTED}")
  return files[0]


def _read(file: epath.Path) -> dict[str, np.ndarray]:
  """All datasets by their full names; those of a softmax, as long as a vocabulary, empty.

  HDF5 gives zeros for what a file declares and does not hold, however much that is: refused.
  """
  import h5py

  def datasets(content):
    arrays, total, length = {}, [], file.stat().length

    def visit(name, item):
      if not isinstance(item, h5py.Dataset):
        return
      if not isinstance(name, str):  # bytes, where they are no UTF-8
        raise InputError(
          f"{file}: the dataset {name!r} has no readable name; fetch or copy it again"
        )
      if item.dtype.kind != "f":
        raise InputError(f"{file}: the dataset {name!r} holds no numbers but {item.dtype}")
      if name.startswith("softmax"):
        arrays[name] = np.empty(0)
        return
      if item.shape is None or item.is_virtual or item.external:
        raise InputError(f"{file}: the dataset {name!r} has no numbers in this file")
      stored = item.id.get_storage_size()
      total.append(item.nbytes)
      packed = item.id.get_create_plist().get_nfilters() > 0
      if sum(total) > MAX_PACKING * length or item.nbytes > stored and not packed:
        raise InputError(
          f"{file}: the dataset {name!r} {list(item.shape)} takes {item.nbytes:,} bytes, of which "
          f"the file holds {stored:,}; fetch or copy it again"
        )
      arrays[name] = np.asarray(item[...], np.float32)

    content.visititems(visit)
    return arrays

  return _opened(file, datasets)


def _opened(file: epath.Path, read):
  import h5py

  try:
    refuse_others(file)
    with file.open("rb") as stream, h5py.File(stream, "r") as content:
      return read(content)
  except InputError:
    raise
  except (OSError, RuntimeError, KeyError, ValueError) as error:  # h5py raises all of these
    reason = str(error).splitlines() or [type(error).__name__]
    raise InputError(
      f"{file}: not a whole HDF5 file ({reason[0]}); fetch or copy it again"
    ) from None


class _Options:
  """Values of an options file, checked: `get(section, "key.key", is it good, what is good)`."""

  def __init__(self, file: epath.Path, options: Any):
    self.file, self.options = file, options
    for section in ("lstm", "char_cnn"):
      if not isinstance(options, dict) or not isinstance(options.get(section), dict):
        raise InputError(f"{file}: the section {section!r} is missing; these are no ELMo options")

  def __call__(self, section, key, good, what, *, optional=False):
    value = self.options[section]
    for part in key.split("."):
      value = value.get(part) if isinstance(value, dict) else None
    if value is None and not optional:
      raise InputError(f"{self.file}: the key {section}.{key} is missing")
    if not good(value):
      raise InputError(f"{self.file}: {section}.{key} is {value!r}, expected {what}")
    return value


def _is_int(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
  return isinstance(value, int | float) and not isinstance(value, bool)


def _are_filters(value: Any) -> bool:
  return (
    isinstance(value, list)
    and bool(value)
    and all(
      isinstance(pair, list) and len(pair) == 2 and all(_is_int(n) and n > 0 for n in pair)
      for pair in value
    )
  )
