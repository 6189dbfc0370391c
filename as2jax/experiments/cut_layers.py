"""A published encoder with a part of its layers: the student that a deeper teacher is distilled into.

Layers are kept as they are and renumbered (as a start for a smaller model: Sun et al. 2019, section
3.3, who keep every second layer, or the last ones). Tokeniser, pooling and prompts stay.
"""

import pathlib
import re
import shutil
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.encoders.checkpoints import families, folders, pretrained, published_folder
from as2jax.encoders.checkpoints import sentence_folder as sentences
from as2jax.encoders.checkpoints.weights import WEIGHTS, format_of, read_tensors
from as2jax.runtime.errors import InputError
from as2jax.runtime.regular_files import read_json

COUNTS = ("num_hidden_layers", "n_layer")  # a config's keys of the number of layers
# Of a folder, what is true of all layers alone: its weights in any form, and its card. The weights of
# the modules behind the transformer stay.
_WEIGHTS = ("model*.safetensors*", "pytorch_model*", "*.h5", "*.msgpack", "*.ot", "*.ckpt*")
_OTHERS = ("onnx", "openvino", "README.md", ".git*")


def cut(source: str, output: epath.PathLike, layers: Sequence[int]) -> dict[str, Any]:
  """Writes the encoder of a published folder with some of its layers alone.

  Args:
    source: a folder, `package:NAME/FOLDER` or a hub name: an encoder, a bi-encoder or a cross-encoder.
    output: a new folder, of the same form, with float32 weights.
    layers: to keep, from 0, ascending.

  Returns:
    `layers` (kept), `of` (how many there were), `parameters` (of all tensors that are written).

  Raises:
    InputError: layers that are not there or in no ascending order, layers of ModernBERT whose kinds of
      attention would change, weights in TensorFlow's form, or an output that exists.

  """
  folder, target = pathlib.Path(folders.resolve(source)), pathlib.Path(output)
  if target.exists():
    raise InputError(f"--output={target} exists; name a new folder, or remove this one")
  listed = (folder / sentences.MODULES).exists()
  inner = sentences.transformer_of(folder, sentences.modules(folder)) if listed else folder
  inner = pathlib.Path(inner)
  family, fields = pretrained.read_family(inner)
  _check(source, family, fields, layers)
  if format_of(inner) == "tensorflow":
    raise InputError(f"{source}: its weights are TensorFlow's; save them as {WEIGHTS} first")
  tensors, file = read_tensors(inner)
  kept = _renumbered(tensors, family, fields["num_layers"], layers, file)
  config = read_json(inner / "config.json")
  config |= {key: len(layers) for key in COUNTS if key in config}
  if "layer_types" in config:
    config["layer_types"] = [config["layer_types"][i] for i in layers]
  try:
    shutil.copytree(folder, target, ignore=_left_out({folder, inner}))
    place = target / inner.relative_to(folder)
    published_folder.write_json(place / "config.json", config | {"dtype": "float32"})
    published_folder.write_tensors(kept, place)
  except BaseException:
    shutil.rmtree(target, ignore_errors=True)  # nothing half-written is left
    raise
  parameters = sum(tensor.size for tensor in kept.values())
  return {"layers": list(layers), "of": fields["num_layers"], "parameters": parameters}


def _left_out(whole: Collection[pathlib.Path]) -> Callable[[str, list[str]], set[str]]:
  """The function `ignore` of `copytree`; `whole`: the folders whose weights are of all layers."""
  weights, others = shutil.ignore_patterns(*_WEIGHTS), shutil.ignore_patterns(*_OTHERS)

  def names(place: str, there: list[str]) -> set[str]:
    left = set(others(place, there))
    return left | set(weights(place, there)) if pathlib.Path(place) in whole else left

  return names


def _check(
  source: str, family: families.Family, fields: dict[str, Any], layers: Sequence[int]
) -> None:
  number = fields["num_layers"]
  if not layers or list(layers) != sorted(set(layers)) or not 0 <= layers[0] <= layers[-1] < number:
    raise InputError(
      f"--layers={','.join(map(str, layers))}: {source} has the layers 0 to {number - 1}; name some of "
      "them, each once, in ascending order"
    )
  if family is families.MODERNBERT:
    every = fields["global_every"]
    moved = [old for new, old in enumerate(layers) if (old % every == 0) != (new % every == 0)]
    if layers[0] or moved:
      raise InputError(
        f"--layers={','.join(map(str, layers))}: every {every}th layer of {source} attends globally, from "
        f"layer 0 on, which has no norm before it; keep layer 0, and let the kinds of attention stand "
        f"where they stood (such as 0 to {every - 1})"
      )


def _renumbered(
  tensors: dict[str, np.ndarray],
  family: families.Family,
  number: int,
  layers: Sequence[int],
  file: str,
) -> dict[str, np.ndarray]:
  """The tensors of the kept layers under their new numbers, and all that belong to no layer.

  Raises:
    InputError: the file's layers are not those of the config.

  """
  stem = next(name for name in family.names.values() if "{}" in name).partition("{}")[0]
  pattern = re.compile(rf"((?:.*\.)?{re.escape(stem)})(\d+)(\..+)")
  new = {old: place for place, old in enumerate(layers)}
  kept, stored_layers = {}, set()
  for name, tensor in tensors.items():
    if tensor.dtype.kind in "iub":  # what old files hold beside weights, such as position_ids
      continue
    if (match := pattern.fullmatch(name)) is None:
      kept[name] = tensor
      continue
    before, old, after = match[1], int(match[2]), match[3]
    stored_layers.add(old)
    if old in new:
      kept[f"{before}{new[old]}{after}"] = tensor
  if stored_layers != set(range(number)):
    raise InputError(
      f"{file}: holds tensors of the layers {', '.join(map(str, sorted(stored_layers))) or 'none'}, the config "
      f"says {number} layers"
    )
  return kept
