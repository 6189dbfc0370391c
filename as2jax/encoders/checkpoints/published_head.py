"""The head of a published sequence classifier that scores pairs of texts (a `CrossEncoder`)."""

import dataclasses
from collections.abc import Mapping

import numpy as np
from etils import epath

from as2jax.encoders.checkpoints import pretrained, sentence_folder
from as2jax.encoders.checkpoints.folders import config_file
from as2jax.encoders.checkpoints.weights import read_tensors
from as2jax.runtime.errors import InputError
from as2jax.runtime.regular_files import read_json

ARCHITECTURE = "ForSequenceClassification"


@dataclasses.dataclass(frozen=True)
class Head:
  """Layers over the unit's token.

  Attributes:
    params: `head/kernel` `[d, 2]`, `head/bias` `[2]` and, where there is a tanh layer before it,
      `pooler/kernel` `[d, d]`, `pooler/bias` `[d]`, float32. A head with one class becomes two
      whose first is 0, so that the score w₁ − w₀ is its logit.
    pooler: whether there is that layer.

  """

  params: Mapping[str, np.ndarray]
  pooler: bool


def read(folder: epath.PathLike) -> Head | None:
  """The head in `folder`; None where its config names no sequence classifier.

  Raises:
    InputError: more than two classes, a layer that is missing, misshapen, or not implemented.

  """
  folder = epath.Path(folder)
  file = config_file(folder)
  if file is None or file.name != "config.json":
    return None
  config = read_json(file)
  names = config.get("architectures") or () if isinstance(config, dict) else ()
  if not any(str(name).endswith(ARCHITECTURE) for name in names):
    return None
  sentence_folder.refuse_prompt(folder)
  family, fields = pretrained.read_family(folder)
  if not family.head:
    raise InputError(
      f"{file}: classifiers of the family {family.name!r} have another head than ours, so nothing "
      "would give the same scores"
    )
  width = fields["hidden_size"]
  # RoBERTa's head holds its own dense layer; BERT's is the encoder's pooler, XLNet's may be absent.
  stems = dict(family.head)
  if family.name == "xlnet":
    summary = config.get("summary_type", "last"), config.get("summary_activation")
    if not config.get("summary_use_proj", True):
      del stems["pooler"]
    if summary != ("last", "tanh" if "pooler" in stems else summary[1]):
      raise InputError(f"{file}: summary_type {summary[0]!r}, {summary[1]!r} is not implemented")
  wanted = {f"{stem}.{leaf}" for stem in stems.values() for leaf in ("weight", "bias")}
  tensors, source = read_tensors(folder, keep=wanted)
  for name in sorted(wanted - tensors.keys()):
    raise InputError(f"{source}: the tensor {name!r} of the classifier is missing")
  params = {}
  for part, stem in stems.items():
    kernel, bias = (np.asarray(tensors[f"{stem}.{x}"], np.float32) for x in ("weight", "bias"))
    classes = (width,) if part == "pooler" else (1, 2)
    if kernel.shape != (len(bias), width) or len(bias) not in classes:
      raise InputError(
        f"{source}: {stem} has the shapes {list(kernel.shape)} and {list(bias.shape)}; a ranker's "
        f"have {' or '.join(map(str, classes))} rows over {width} features"
      )
    if len(bias) == 1:
      kernel = np.concatenate([np.zeros_like(kernel), kernel])
      bias = np.concatenate([np.zeros_like(bias), bias])
    params |= {f"{part}/kernel": kernel.T, f"{part}/bias": bias}
  return Head(params, "pooler" in stems)
