"""A trained run for the original libraries (`as2jax export`).

A bi-encoder becomes a sentence-transformers folder, a cross-encoder one that transformers'
AutoModelForSequenceClassification and sentence-transformers' CrossEncoder load.
"""

import dataclasses
import logging
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from flax import traverse_util
from safetensors import SafetensorError

from as2jax.encoders import cross_encoder_folder, hub, sentence_folder, transformer_folder, weights
from as2jax.encoders import family as families
from as2jax.inference import model_card
from as2jax.inference.run import Run
from as2jax.models.system import PublishedForm, exported_form
from as2jax.runtime import bound, registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import lock
from as2jax.runtime.version import __version__
from as2jax.training.build import Components

log = logging.getLogger(__name__)

LABELS = {0: "answer"}  # one logit, w₁ − w₀, whose sigmoid is P(1)
SIGMOID = "activation.Sigmoid"


def export(
  run: epath.PathLike, output: epath.PathLike, seed: int | None = None, *, allow_code: bool = False
) -> pathlib.Path:
  """Writes the best checkpoint of a seed of a finished run to a new folder, whole or not at all.

  `allow_code` is that of `as2jax.load`.
  """
  opened = Run(run, as_begun=True, allow_code=allow_code)
  config, content = opened.config, opened.results
  if not registry.has_parameters(config.model.name):
    raise InputError(f"{run} is a run of {config.model.name}, which has no parameters to export")
  if seed is None and len(opened.seeds) > 1:
    raise InputError(f"the run has the seeds {opened.seeds}: choose one with --seed")
  seed = opened.check_seed(seed)
  if "://" in str(output) or os.path.isfile(output) or list(pathlib.Path(output).glob("*")):
    raise InputError(f"{output} is not a new or empty local folder; name one")
  components = opened.components
  form = exported_form(components.model)
  params = opened.parameters(seed)
  for text in model_card.differences(config, components.model, form):
    log.warning("%s ranks otherwise than the run: %s", output, text)
  base, lower_case = _base(components, form)
  card = model_card.render(
    content, components.config, seed, form=form, model=components.model, prompts=components.prompts
  )
  output = pathlib.Path(output)
  scratch = output.absolute().parent / f".{output.name}.unfinished"
  with lock(scratch, str(output)):
    whole = scratch / "whole"
    shutil.rmtree(whole, ignore_errors=True)  # of a process that was killed
    try:
      whole.mkdir()
      write(whole, components, params, form=form, base=base, lower_case=lower_case)
      head, rest = card.split("\n", 1)
      card = "\n".join([head, bound.card_line(whole), rest])
      (whole / bound.CARD).write_text(card, encoding="utf-8")
      os.replace(whole, output)
    except (OSError, SafetensorError) as error:
      raise InputError(f"{output} cannot be written: {error}") from error
    finally:
      shutil.rmtree(scratch, ignore_errors=True)
  return output


def write(
  folder: pathlib.Path,
  components: Components,
  params: Mapping[str, np.ndarray],
  *,
  form: PublishedForm,
  base: epath.PathLike,
  lower_case: bool,
) -> None:
  """Writes all of the folder but its model card.

  Args:
    params: of the model, by path.
    form: the architecture, from `exported_form`.
    base: the folder of the transformer that the run began with.
    lower_case: whether texts are lower-cased before the tokeniser sees them.

  """
  encoder = components.model.encoder
  family = families.of(encoder)
  source = {"base": base, "encoder": encoder, "family": family}
  prompts = dataclasses.astuple(components.prompts)
  # The pooler of BERT's pre-training is no part of the encoder; the library expects it there.
  pooler = components.source.pooler if form.kind == "sentence_transformer" else None
  tensors = weights.to_tensors(_below(params, "encoder/"), encoder, pooler)
  stems, settings, layers, pooling = (), {}, [], form.pooling
  if form.kind == "sentence_transformer":
    for number, dense in enumerate(form.dense):
      layers.append((("dense", *dense), _below(params, f"dense_{number}/")))
    if form.normalize:
      layers.append((("normalize",), {}))
  else:
    stems, settings, layers = _head(form, family, params, base)
  if stems:
    tensors = {family.prefix + name: tensor for name, tensor in tensors.items()}
    for (layer, leaves), stem in zip(layers, stems, strict=True):
      tensors |= sentence_folder.tensors_of(layer, stem, leaves)
  architecture = family.classes + ("ForSequenceClassification" if stems else "Model")
  transformer_folder.write_transformer(
    folder, tensors, architecture=architecture, settings=settings, **source
  )
  if stems:
    pooling, layers = (), []
  if not stems or prompts[0] or lower_case:
    sentence_folder.write_modules(
      folder,
      width=encoder.hidden_size,
      pooling=pooling,
      layers=layers,
      prompts=prompts,
      max_length=components.config.data.max_length,
      lower_case=lower_case,
      version=__version__,
      similarity=form.score if form.kind == "sentence_transformer" else "",
    )
  transformer_folder.write_tokenizer(
    folder,
    tokenizer=components.source.tokenizer,
    family=family,
    max_length=components.config.data.max_length,
    typed=form.typed,
  )


def _head(
  form: PublishedForm,
  family: families.Transformer,
  params: Mapping[str, np.ndarray],
  base: epath.PathLike,
) -> tuple[Sequence[str], dict[str, Any], list[tuple[tuple, dict[str, np.ndarray]]]]:
  """Returns the head of a cross-encoder, as a sequence classifier's layers or as modules.

  Returns:
    The stem of each layer's tensors, () of modules; the config's settings; (layer, its parameters).

  """
  if "head/kernel" not in params:  # a published head
    layers = [(layer, _below(params, f"layer_{n}/")) for n, layer in enumerate(form.layers)]
    stems, classes = cross_encoder_folder.stems(base), form.layers[-1][1]
    if not stems:
      return (), {}, layers
    names = cross_encoder_folder.labels(base) or [f"LABEL_{i}" for i in range(classes)]
    return stems, _labels(names, SIGMOID if classes == 1 else "linear.Identity"), layers
  kernel, bias = params["head/kernel"], params["head/bias"]
  single = {"kernel": kernel[:, 1:] - kernel[:, :1], "bias": bias[1:] - bias[:1]}  # w₁ − w₀
  layers, parts = [(("dense", 1, "identity", True), single)], ["head"]
  if "pooler/kernel" in params:
    pooler = _below(params, "pooler/")
    layers = [(("dense", len(pooler["bias"]), "tanh", True), pooler), *layers]
    parts = ["pooler", "head"]
  if form.kind == "reranker":
    return (), {}, layers
  settings = _labels(list(LABELS.values()), SIGMOID)
  settings |= family.classifier_settings(form.pooler, form.dropout)
  return [family.head[part] for part in parts], settings, layers


def _labels(names: Sequence[str], activation: str) -> dict[str, Any]:
  return {
    "id2label": {str(i): name for i, name in enumerate(names)},
    "label2id": {name: i for i, name in enumerate(names)},
    "sentence_transformers": {"activation_fn": f"torch.nn.modules.{activation}"},
  }


def _base(components: Components, form: PublishedForm) -> tuple[epath.Path, bool]:
  """Returns the folder of the base transformer, and whether texts are lower-cased before its tokeniser."""
  folder = hub.resolve(components.config.encoder.pretrained)
  if form.kind == "reranker" and (published := cross_encoder_folder.read(folder)):
    return published.transformer, published.lower_case
  if form.from_sentence_folder or not (folder / hub.CONFIG).exists():
    published = sentence_folder.read(folder)
    return published.transformer, published.lower_case and form.from_sentence_folder
  return folder, False


def _below(params: Mapping[str, np.ndarray], prefix: str) -> dict[str, Any]:
  flat = {}
  for path, value in params.items():
    if path.startswith(prefix):
      flat[path.removeprefix(prefix)] = value
  return traverse_util.unflatten_dict(flat, sep="/")
