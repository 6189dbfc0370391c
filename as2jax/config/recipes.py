"""One's own data with a system of the package: what `--recipe`, `--train`, `--dev`, `--test` mean."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from as2jax.config import baselines, presets, recommended
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

TRAINED = {
  **recommended.KINDS,
  "triplet": presets.triplet,
  "siamese": presets.siamese,
  "crossencoder": presets.crossencoder,
  "loct": presets.loct,
  "cassie": presets.cassie,
}
NAMES = (*TRAINED, *baselines.LEXICAL, *baselines.ENCODERS)
HELD_OUT = 0.1  # of the training questions, where no dev file selects the best epoch


def apply(config: ConfigDict, argument: str) -> ConfigDict:
  """Turns `config` into that of a recipe on files: `triplet,minilm` names it and further words.

  Raises:
    InputError: no recipe or several, or an unknown word.

  """
  words = argument.split(",")
  named = [word for word in words if word in NAMES]
  if len(named) != 1:
    near = "" if named else presets.nearest(words, NAMES)
    hint = near or "such as own:triplet,minilm"
    raise InputError(f"name one recipe of {', '.join(NAMES)}; {hint}")
  if named[0] in TRAINED:
    TRAINED[named[0]](config)
    presets.apply(config, argument, named)
    recommended.rates_of_encoder(config, named[0], words)
  else:
    baselines.apply(config, argument)
  if config.data.name != "sample":
    config.data.name = "files"
  return config


def own_files(config: ConfigDict, files: Mapping[str, str]) -> dict[str, Any]:
  """The overrides that put a user's files in place of a config's data.

  With a dev file that selects, whatever the config holds out; without one a part of the training
  questions does, the config's own or a tenth. Splits without a file are not reported.

  Args:
    files: split (train, dev, test) -> path; "" where there is none.

  Raises:
    InputError: there is no train file, and a run of the config's model reads one.

  """
  paths = {split: path for split, path in files.items() if path}
  model: Any = registry.find(registry.MODELS, config.model.name, "model.name")
  if "train" not in paths and (model.has_parameters or model.reads_training):
    untrained = model.has_parameters and config.epochs == 0 and config.encoder.get("pretrained")
    raise InputError(
      f"a run of {config.model.name} reads training questions, and of your own files there is only "
      f"{' and '.join(paths)}: give a file for `train`, too"
      + f", or evaluate {untrained} without a run: as2jax evaluate {untrained} --data=FILE"
      * bool(untrained)
    )
  selects = "dev" in paths or "train" not in paths  # some rankers of words read no `train`
  held_out = 0.0 if selects else config.data.holdout or HELD_OUT
  reported = ["heldout"] * bool(held_out) + [split for split in ("dev", "test") if split in paths]
  name = config.data.name if config.data.name == "asnq_files" else "files"
  return {
    "data.name": name,
    "data.rules": (),
    "data.holdout": held_out,
    "evaluation.splits": tuple(reported),
    **{f"data.{split}": path for split, path in paths.items()},
  }
