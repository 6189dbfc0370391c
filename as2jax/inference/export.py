"""python -m as2jax.inference.export --run=runs/x --output=FOLDER: a trained run for the original libraries.

A bi-encoder becomes a sentence-transformers folder, a cross-encoder one that transformers'
AutoModelForSequenceClassification and sentence-transformers' CrossEncoder load.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from flax import traverse_util

from as2jax.encoders.checkpoints import (
  families,
  folders,
  pretrained,
  published_folder,
  sentence_folder,
)
from as2jax.inference import model_card
from as2jax.inference.run import Run
from as2jax.models.biencoder import DISTANCES, BiEncoder
from as2jax.models.crossencoder import CrossEncoder
from as2jax.models.sentence_bert import SentenceBert
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.version import __version__
from as2jax.training.build import Experiment

LABELS = {0: "no answer", 1: "answer"}
CLASSIFIERS = {
  "bert": "BertForSequenceClassification",
  "roberta": "RobertaForSequenceClassification",
  "xlnet": "XLNetForSequenceClassification",
}
ENCODERS = {"bert": "BertModel", "roberta": "RobertaModel", "xlnet": "XLNetModel"}
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
  if config.model.name in registry.LEXICAL:
    raise InputError(f"{run} is a run of {config.model.name}, which has no parameters to export")
  if seed is None and len(opened.seeds) > 1:
    raise InputError(f"the run has the seeds {opened.seeds}: choose one with --seed")
  seed = opened.check_seed(seed)
  _check_output(output)
  experiment = opened.components
  check_expressible(experiment.model)
  began_with = content["weights"]["sha256"]
  if experiment.facts["sha256"] != began_with:
    raise InputError(
      f"{config.encoder.pretrained} no longer holds the weights that {run} began with (SHA-256 "
      f"{experiment.facts['sha256']}, not {began_with}), so its vocabulary may be another, too: "
      "put them back"
    )
  params = opened.parameters(seed)
  base, lower_case = _base(experiment)
  with _whole(output) as folder:
    write(folder, experiment, params, base=base, lower_case=lower_case)
    card = model_card.render(
      content, config, seed, score=exported_score(experiment.model), model=experiment.model
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
  return pathlib.Path(output)


def check_expressible(model: Any) -> None:
  """Raises InputError where no architecture of the original libraries gives the model's scores."""
  name = type(model).__name__
  if not isinstance(model, (BiEncoder, CrossEncoder)):
    raise InputError(
      f"{name} has no counterpart in sentence-transformers; exported are "
      "bi-encoders (biencoder, triplet, siamese, sentence_bert) and cross-encoders"
    )
  try:
    family = families.of(model.encoder)
  except TypeError as error:
    raise InputError(
      f"the encoder {error}: exported are models over BERT, RoBERTa and XLNet"
    ) from None
  if isinstance(model, BiEncoder):
    if model.pooling == "attention":
      raise InputError(
        "model.pooling = 'attention': sentence-transformers has no pooling with a "
        f"learned query; poolings that it has: {', '.join(_poolings())}"
      )
    return
  if model.token != family.tokens:
    raise InputError(
      f"model.token = {model.token!r}: {CLASSIFIERS[family.name]} classifies by "
      f"{TOKENS[family.tokens]} token ({family.tokens!r}) alone"
    )
  if not model.pooler and family.name != "xlnet":
    raise InputError(
      f"model.pooler = False: {CLASSIFIERS[family.name]} always has a tanh layer "
      "before its head, so nothing would give the same scores; train with "
      "--config.model.pooler=True"
    )


def exported_score(model: Any) -> str:
  """The name of the score that the exported folder ranks by: Siamese's head stays behind."""
  if isinstance(model, CrossEncoder):
    return model.score_names[0]
  return model.score if model.score in DISTANCES else DISTANCES[0]


def write(
  folder: pathlib.Path,
  experiment: Experiment,
  params: Mapping[str, np.ndarray],
  *,
  base: epath.PathLike,
  lower_case: bool,
) -> None:
  """Writes all of the folder but its model card.

  Args:
    params: of the model, by path.
    base: the folder of the transformer that the run began with.
    lower_case: whether texts are lower-cased before the tokeniser sees them.

  """
  model, max_length = experiment.model, experiment.config.data.max_length
  family = families.of(model.encoder)
  encoder = _below(params, "encoder/")
  options = {"family": family, "num_heads": model.encoder.num_heads}
  given = {"base": base, "encoder": model.encoder, "family": family}
  if isinstance(model, CrossEncoder):
    tensors = {
      family.prefix + name: tensor
      for name, tensor in pretrained.to_tensors(encoder, **options).items()
    }
    for part, stem in family.head.items():
      if f"{part}/kernel" in params:
        tensors[f"{stem}.weight"] = params[f"{part}/kernel"].T
        tensors[f"{stem}.bias"] = params[f"{part}/bias"]
    published_folder.write_transformer(
      folder,
      tensors,
      architecture=CLASSIFIERS[family.name],
      settings=_classifier_settings(model, family),
      **given,
    )
  else:
    # The pooler of BERT's pre-training is no part of the encoder; the library expects it there.
    tensors = pretrained.to_tensors(encoder, experiment.source.pooler, **options)
    published_folder.write_transformer(
      folder, tensors, architecture=ENCODERS[family.name], settings={}, **given
    )
    fields = {"pooling": model.pooling, "dense": (), "normalize": False}
    if isinstance(model, SentenceBert):
      fields |= {"dense": model.dense, "normalize": model.normalize}
    else:
      fields["pooling"] = (model.pooling,)
    published_folder.write_sentence_modules(
      folder,
      width=model.encoder.hidden_size,
      fields=fields,
      params=params,
      max_length=max_length,
      lower_case=lower_case,
      similarity=exported_score(model),
      version=__version__,
    )
  published_folder.write_tokenizer(
    folder, base=base, tokenizer=experiment.source.tokenizer, family=family, max_length=max_length
  )


def _classifier_settings(model: CrossEncoder, family: families.Family) -> dict[str, Any]:
  settings = {
    "id2label": {str(i): label for i, label in LABELS.items()},
    "label2id": {label: i for i, label in LABELS.items()},
    "problem_type": "single_label_classification",
  }
  if family.name != "xlnet":
    return settings | {"classifier_dropout": model.dropout}
  return settings | {
    "summary_type": "last",
    "summary_use_proj": model.pooler,
    "summary_activation": "tanh" if model.pooler else "linear",
    "summary_last_dropout": model.dropout,
  }


def _base(experiment: Experiment) -> tuple[epath.Path, bool]:
  """The folder of the base transformer, and whether texts were lower-cased before its tokeniser."""
  folder = pretrained.resolve(experiment.config.encoder.pretrained)
  if isinstance(experiment.model, SentenceBert) or folders.config_file(folder) is None:
    found = sentence_folder.read(folder)
    return found.transformer, found.lower_case and isinstance(experiment.model, SentenceBert)
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
    raise InputError(f"--output={output} is no local folder; give one, and copy it from there")
  path = pathlib.Path(output)
  if path.exists() and not path.is_dir():
    raise InputError(f"--output={output} is a file; name a new folder")
  if path.exists() and any(path.iterdir()):
    raise InputError(f"--output={output} is not empty; name a new folder, or remove this one")


@contextlib.contextmanager
def _whole(output: epath.PathLike) -> Iterator[pathlib.Path]:
  """A folder beside `output` that takes its place when the block ends without an error."""
  output = pathlib.Path(output)
  scratch = output.absolute().parent / f".{output.name}.{os.getpid()}"
  try:
    scratch.mkdir(parents=True)
    yield scratch
    os.replace(scratch, output)
  except OSError as error:
    raise InputError(f"--output={output} cannot be written: {error}") from error
  finally:
    shutil.rmtree(scratch, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
  """Exports; returns the exit status: 0, or 2 for bad input."""
  parser = argparse.ArgumentParser(prog="python -m as2jax.inference.export", description=__doc__)
  parser.add_argument("--run", required=True, help="folder of a finished run")
  parser.add_argument("--output", required=True, help="folder to write; must not exist or be empty")
  parser.add_argument("--seed", type=int, help="which of the run's seeds, where it has several")
  flags = parser.parse_args(arguments)
  try:
    print(f"written: {export(flags.run, flags.output, flags.seed)}")
  except InputError as error:
    print(f"as2jax: {error}", file=sys.stderr)
    return 2
  return 0


if __name__ == "__main__":
  sys.exit(main())
