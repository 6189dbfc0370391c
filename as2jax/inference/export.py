"""A trained run for the original libraries (`as2jax export`).

A bi-encoder becomes a sentence-transformers folder, a cross-encoder one that transformers'
AutoModelForSequenceClassification and sentence-transformers' CrossEncoder load.
"""

import contextlib
import dataclasses
import logging
import os
import pathlib
import shutil
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
from etils import epath
from flax import traverse_util

from as2jax.encoders.checkpoints import (
  families,
  folders,
  pretrained,
  published_folder,
  published_head,
  sentence_folder,
)
from as2jax.inference import model_card
from as2jax.inference.run import Run
from as2jax.models.system import PublishedForm, System
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.version import __version__
from as2jax.training.build import Components

log = logging.getLogger(__name__)

LABELS = {0: "answer"}  # one logit, w₁ − w₀, whose sigmoid is P(1)
CLASSIFIERS = {
  "bert": "BertForSequenceClassification",
  "roberta": "RobertaForSequenceClassification",
  "mpnet": "MPNetForSequenceClassification",
  "xlnet": "XLNetForSequenceClassification",
  "modernbert": "ModernBertForSequenceClassification",
}
ENCODERS = {
  "bert": "BertModel",
  "roberta": "RobertaModel",
  "mpnet": "MPNetModel",
  "xlnet": "XLNetModel",
  "modernbert": "ModernBertModel",
}
TOKENS = {"cls": "the first", "cls_last": "the last"}


def export(run: epath.PathLike, output: epath.PathLike, seed: int | None = None) -> pathlib.Path:
  """Writes the best checkpoint of a finished run to a new folder, whole or not at all.

  Args:
    seed: which of the run's; None where it has only one.

  Raises:
    InputError: the run is not finished, cannot be expressed in the original's architecture, or its
      base weights have changed; the output exists.

  """
  opened = Run(run)
  config, content = opened.config, opened.results
  if not registry.has_parameters(config.model.name):
    raise InputError(f"{run} is a run of {config.model.name}, which has no parameters to export")
  if seed is None and len(opened.seeds) > 1:
    raise InputError(f"the run has the seeds {opened.seeds}: choose one with --seed")
  seed = opened.check_seed(seed)
  _check_output(output)
  components = opened.components
  form = published_form(components.model)
  params = opened.parameters(seed)
  for text in model_card.differences(config, components.model, form):
    log.warning("%s ranks otherwise than the run: %s", output, text)
  base, lower_case = _base(components, form)
  with _whole(output) as folder:
    write(folder, components, params, form=form, base=base, lower_case=lower_case)
    described = {"form": form, "model": components.model, "prompts": components.prompts}
    card = model_card.render(content, components.config, seed, **described)
    (folder / "README.md").write_text(card, encoding="utf-8")
  return pathlib.Path(output)


def published_form(model: System) -> PublishedForm:
  """What the model declares of its published form.

  Raises:
    InputError: no architecture of the original libraries gives the model's scores.

  """
  form = model.published_form()
  if form is None:
    raise InputError(
      f"{type(model).__name__} has no counterpart in sentence-transformers; exported are "
      "bi-encoders (biencoder, triplet, siamese, sentence_bert) and cross-encoders"
    )
  try:
    family = families.of(model.encoder)
  except TypeError as error:
    raise InputError(
      f"the encoder {error}: exported are models over BERT, RoBERTa, XLNet and ModernBERT"
    ) from None
  if registry.find(registry.ENCODERS, family.name, "encoder.name") is not type(model.encoder):
    raise InputError(
      f"the encoder {type(model.encoder).__name__} is a class of your own, which the original "
      "libraries do not have"
    )
  if form.kind == "sentence_transformer":
    if "attention" in form.pooling:
      raise InputError(
        "model.pooling = 'attention': sentence-transformers has no pooling with a "
        f"learned query; poolings that it has: {', '.join(_poolings())}"
      )
    return form
  if form.kind == "reranker":
    return form
  if not family.head:  # its classifiers have other layers than ours: a list of modules has any
    return _as_modules(form, model.encoder.hidden_size)
  if form.token != family.tokens:
    raise InputError(
      f"model.token = {form.token!r}: {CLASSIFIERS[family.name]} classifies by "
      f"{TOKENS[family.tokens]} token ({family.tokens!r}) alone"
    )
  if not form.pooler and family.name != "xlnet":
    raise InputError(
      f"model.pooler = False: {CLASSIFIERS[family.name]} always has a tanh layer "
      "before its head, so nothing would give the same scores; train with "
      "--config.model.pooler=True"
    )
  return form


def _as_modules(form: PublishedForm, width: int) -> PublishedForm:
  """A two-way classifier as pooling and dense layers that end in one logit."""
  before = (("dense", width, "tanh", True),) if form.pooler else ()
  return dataclasses.replace(
    form, kind="reranker", pooling=(form.token,), layers=(*before, ("dense", 1, "identity", True))
  )


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
    form: the architecture, from `published_form`.
    base: the folder of the transformer that the run began with.
    lower_case: whether texts are lower-cased before the tokeniser sees them.

  """
  model, max_length = components.model, components.config.data.max_length
  family = families.of(model.encoder)
  encoder = _below(params, "encoder/")
  options: dict[str, Any] = {"family": family, "num_heads": model.encoder.num_heads}
  source = {"base": base, "encoder": model.encoder, "family": family}
  if form.kind == "sequence_classifier":
    published_folder.write_transformer(
      folder,
      _classifier_tensors(params, options),
      architecture=CLASSIFIERS[family.name],
      settings=_classifier_settings(form, family),
      **source,
    )
    _write_classifier_module(folder, components, lower_case)
  elif form.kind == "reranker":
    _write_reranker(folder, components, params, form=form, base=base, lower_case=lower_case)
  else:
    # The pooler of BERT's pre-training is no part of the encoder; the library expects it there.
    tensors = pretrained.to_tensors(encoder, components.source.pooler, **options)
    published_folder.write_transformer(
      folder, tensors, architecture=ENCODERS[family.name], settings={}, **source
    )
    published_folder.write_sentence_modules(
      folder,
      width=model.encoder.hidden_size,
      fields={"pooling": form.pooling, "dense": form.dense, "normalize": form.normalize},
      params=params,
      max_length=max_length,
      lower_case=lower_case,
      similarity=form.score,
      version=__version__,
      prompts=dataclasses.astuple(components.prompts),
    )
  published_folder.write_tokenizer(
    folder, base=base, tokenizer=components.source.tokenizer, family=family, max_length=max_length
  )


def _single_logit(params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """The parameters with a two-way `head` made one whose logit is w₁ − w₀."""
  kernel, bias = params["head/kernel"], params["head/bias"]
  return {**params, "head/kernel": kernel[:, 1:] - kernel[:, :1], "head/bias": bias[1:] - bias[:1]}


def _classifier_tensors(
  params: Mapping[str, np.ndarray], options: Mapping[str, Any]
) -> dict[str, np.ndarray]:
  """The tensors of a sequence classifier: its encoder's, and those of its head's layers.

  Args:
    params: of the model, by path.
    options: of `pretrained.to_tensors`, with the `family`.

  """
  family = options["family"]
  encoder = pretrained.to_tensors(_below(params, "encoder/"), **options)
  tensors = {family.prefix + name: tensor for name, tensor in encoder.items()}
  single = _single_logit(params)
  for part, stem in family.head.items():
    if f"{part}/kernel" in params:
      tensors[f"{stem}.weight"] = single[f"{part}/kernel"].T
      tensors[f"{stem}.bias"] = single[f"{part}/bias"]
  return tensors


def _write_reranker(
  folder: pathlib.Path,
  components: Components,
  params: Mapping[str, np.ndarray],
  *,
  form: PublishedForm,
  base: epath.PathLike,
  lower_case: bool,
) -> None:
  """Writes encoder and head: as a sequence classifier where the base is one, else as modules."""
  encoder = components.model.encoder
  family = families.of(encoder)
  if "head/kernel" in params:  # a classifier of ours: pooler and head are the layers
    names = [part for part in ("pooler", "head") if f"{part}/kernel" in params]
    params = _single_logit(params)
  else:
    names = [f"layer_{number}" for number in range(len(form.layers))]
  layers = [
    (
      layer,
      {
        leaf: np.asarray(params[f"{name}/{leaf}"]) for leaf in _LEAVES if f"{name}/{leaf}" in params
      },
    )
    for layer, name in zip(form.layers, names, strict=True)
  ]
  tensors = pretrained.to_tensors(
    _below(params, "encoder/"), family=family, num_heads=encoder.num_heads
  )
  source = {"base": base, "encoder": encoder, "family": family}
  stems = published_head.stems(base) if names[0] == "layer_0" else ()
  if stems:
    tensors = {family.prefix + name: tensor for name, tensor in tensors.items()}
    for (layer, leaves), stem in zip(layers, stems, strict=True):
      tensors |= published_head.tensors_of(layer, stem, leaves)
    published_folder.write_transformer(
      folder,
      tensors,
      architecture=CLASSIFIERS[family.name],
      settings=_labels_of(base, form.layers[-1][1]),
      **source,
    )
    _write_classifier_module(folder, components, lower_case)
  else:
    published_folder.write_transformer(
      folder, tensors, architecture=ENCODERS[family.name], settings={}, **source
    )
    published_folder.write_scoring_modules(
      folder,
      width=encoder.hidden_size,
      pooling=form.pooling,
      layers=layers,
      max_length=components.config.data.max_length,
      lower_case=lower_case,
    )
    prompt = components.prompts.question
    published_folder.write_settings(
      folder, version=__version__, prompts={"query": prompt} if prompt else {}, cross_encoder=True
    )


def _write_classifier_module(
  folder: pathlib.Path, components: Components, lower_case: bool
) -> None:
  """Writes what is done to the texts of a sequence classifier, where something is."""
  if components.prompts.question or lower_case:
    published_folder.write_classifier_module(
      folder,
      prompt=components.prompts.question,
      lower_case=lower_case,
      max_length=components.config.data.max_length,
      version=__version__,
    )


_LEAVES = ("kernel", "bias", "scale")


def _labels_of(base: epath.PathLike, classes: int) -> dict[str, Any]:
  """The names of the classes as the base has them; of one class, the score is P(it)."""
  names = published_head.labels(base) or [f"LABEL_{i}" for i in range(classes)]
  kind = "activation.Sigmoid" if classes == 1 else "linear.Identity"
  return {
    "id2label": {str(i): name for i, name in enumerate(names)},
    "label2id": {name: i for i, name in enumerate(names)},
    "sentence_transformers": {"activation_fn": f"torch.nn.modules.{kind}"},
  }


def _classifier_settings(form: PublishedForm, family: families.Family) -> dict[str, Any]:
  settings = {
    "id2label": {str(i): label for i, label in LABELS.items()},
    "label2id": {label: i for i, label in LABELS.items()},
    "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"},
  }
  if family.name != "xlnet":
    return settings | {"classifier_dropout": form.dropout}
  return settings | {
    "summary_type": "last",
    "summary_use_proj": form.pooler,
    "summary_activation": "tanh" if form.pooler else "linear",
    "summary_last_dropout": form.dropout,
  }


def _base(components: Components, form: PublishedForm) -> tuple[epath.Path, bool]:
  """The folder of the base transformer, and whether texts were lower-cased before its tokeniser."""
  folder = pretrained.resolve(components.config.encoder.pretrained)
  if form.kind == "reranker" and (published := published_head.read(folder)):
    return published.transformer, published.lower_case
  if form.from_sentence_folder or folders.config_file(folder) is None:
    published = sentence_folder.read(folder)
    return published.transformer, published.lower_case and form.from_sentence_folder
  return folder, False


def _below(params: Mapping[str, np.ndarray], prefix: str) -> dict[str, Any]:
  """The tree of what lies below `prefix`."""
  flat = {
    path.removeprefix(prefix): value for path, value in params.items() if path.startswith(prefix)
  }
  return traverse_util.unflatten_dict(flat, sep="/")


def _poolings() -> list[str]:
  return sorted(sentence_folder.POOLINGS.values())


def _check_output(output: epath.PathLike) -> None:
  if "://" in str(output):
    raise InputError(f"{output} is no local folder; give one, and copy it from there")
  path = pathlib.Path(output)
  if path.exists() and not path.is_dir():
    raise InputError(f"{output} is a file; name a new folder")
  if path.exists() and any(path.iterdir()):
    raise InputError(f"{output} is not empty; name a new folder, or remove this one")


@contextlib.contextmanager
def _whole(output: epath.PathLike) -> Generator[pathlib.Path, None, None]:
  """A folder beside `output` that takes its place when the block ends without an error."""
  output = pathlib.Path(output)
  scratch = output.absolute().parent / f".{output.name}.{os.getpid()}"
  try:
    scratch.mkdir(parents=True)
    yield scratch
    os.replace(scratch, output)
  except OSError as error:
    raise InputError(f"{output} cannot be written: {error}") from error
  finally:
    shutil.rmtree(scratch, ignore_errors=True)
