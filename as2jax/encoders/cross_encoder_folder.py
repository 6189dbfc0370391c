"""Published cross-encoders: sequence classifiers, and lists of modules that end in scores.

A sequence classifier of transformers (`…ForSequenceClassification`) holds its head among the encoder's
tensors. A modular `CrossEncoder` of sentence-transformers lists Transformer, Pooling, Dense, LayerNorm
… in `modules.json`, and its last Dense gives `scores`. Both become the fields and parameters of
`as2jax.models.crossencoder.Reranker`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data.record import right_class
from as2jax.encoders import hub, sentence_folder, transformer_folder, weights
from as2jax.encoders.family import Transformer
from as2jax.encoders.sentence_folder import SCORES, SentenceFolder
from as2jax.layers.vectors import Layer
from as2jax.runtime.errors import InputError

ARCHITECTURE = "ForSequenceClassification"


def read(folder: epath.PathLike) -> SentenceFolder | None:
  """Reads the cross-encoder in `folder`; None where it holds none (an encoder, or a bi-encoder)."""
  folder = epath.Path(folder)
  listed = [("Transformer", folder)]
  if (folder / hub.MODULES).exists():
    listed = sentence_folder.modules(folder)
  transformer, prompt = listed[0][1], sentence_folder.read_prompts(folder)[2]
  if len(listed) == 1:
    config = _classifier_config(transformer)
    if config is None:
      return None
    pooling, layers, params = _classifier(transformer, config)
  else:
    last = sentence_folder.read_config(listed[-1][1] / "config.json")
    if last.get("module_output_name") != SCORES:
      return None
    pooling, layers, params = sentence_folder.read_layers(
      folder, listed, "layer", prompted=bool(prompt), output=SCORES
    )
  fields = {"pooling": pooling, "layers": tuple(layers)}
  names, classes = labels(transformer), layers[-1][1]
  label = right_class(names) if len(names) == classes else None
  if classes == 1:
    label = 0
  if label is not None:
    fields["label"] = label
  return sentence_folder.described(transformer, fields, params, (prompt, ""))


def stems(folder: epath.PathLike) -> tuple[str, ...]:
  """Returns the stem of each layer's tensors in a sequence classifier; () where there is none."""
  config = _classifier_config(epath.Path(folder))
  if config is None:
    return ()
  family, fields = transformer_folder.read_family(folder)
  return tuple(stem for _, stem in _layers(family, config, fields["hidden_size"], str(folder))[1])


def plain(family: Transformer, width: int) -> dict[str, Any]:
  """Returns the fields of `Reranker` for a family's sequence classifier with one class."""
  pooling, layers = _layers(family, {}, width, family.name)
  *before, last = [layer for layer, _ in layers]
  return {"pooling": (pooling,), "layers": (*before, ("dense", 1, *last[2:])), "label": 0}


def labels(folder: epath.PathLike) -> list[str]:
  """Returns the names of a sequence classifier's classes, in their order; [] where there are none."""
  names = (_classifier_config(epath.Path(folder)) or {}).get("id2label") or {}
  return [str(names[key]) for key in sorted(names, key=int)]


def _classifier_config(folder: epath.Path) -> dict[str, Any] | None:
  """Returns the config of a sequence classifier; None where the folder's names none."""
  config = sentence_folder.read_config(folder / hub.CONFIG)
  names = map(str, config.get("architectures") or ())
  if any(name.endswith(ARCHITECTURE) for name in names):
    return config
  return None


def _layers(
  family: Transformer, config: Mapping[str, Any], width: int, file: str
) -> tuple[str, Sequence[tuple[Layer, str]]]:
  """Returns the pooling of a family's sequence classifier, and its layers with their tensors' stems.

  The number of classes, which only the tensors tell, is 0 here.
  """
  try:
    if family.classifier:
      return family.classifier(config, width)
  except ValueError as error:
    raise InputError(f"{file}: {error}") from None
  pooler, head = ("dense", width, "tanh", True), ("dense", 0, "identity", True)
  return family.token, [(pooler, family.head["pooler"]), (head, family.head["head"])]


def _classifier(
  folder: epath.Path, config: dict[str, Any]
) -> tuple[tuple[str, ...], list[Layer], dict[str, np.ndarray]]:
  """Reads a sequence classifier's pooling, its layers, and their parameters."""
  family, fields = transformer_folder.read_family(folder)
  width = fields["hidden_size"]
  pooling, wanted = _layers(family, config, width, str(folder / hub.CONFIG))
  keep = [f"{stem}.weight" for _, stem in wanted]
  keep += [f"{stem}.bias" for layer, stem in wanted if layer[-1]]
  tensors, source = weights.read_tensors(folder, keep=keep)
  layers, params = [], {}
  for number, (layer, stem) in enumerate(wanted):
    layer, arrays = sentence_folder.fit(layer, tensors, stem, width, source)
    layers.append(layer)
    for leaf, value in arrays.items():
      params[f"layer_{number}/{leaf}"] = value
  return (pooling,), layers, params
