"""Loads the resolved config of a run: --config=rerun:runs/x/config.json."""

import json
from collections.abc import Mapping
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from as2jax.config import base
from as2jax.runtime import regular_files
from as2jax.runtime.errors import InputError


def get_config(argument=None):
  """The config of a finished run, from the path of its config.json.

  Raises:
    InputError: no such file, or it is not the config of a run.

  """
  if not argument:
    raise InputError("name the run's config: --config=rerun:runs/x/config.json")
  path = epath.Path(argument)
  if not path.is_file():
    raise InputError(
      f"there is no file {argument}; a run writes its config.json into its --workdir"
    )
  stored = regular_files.read_json(path)
  if not isinstance(stored, dict) or not all(
    isinstance(stored.get(key), dict) for key in ("model", "loss")
  ):
    raise InputError(f"{argument} is no config of a run: it has no sections `model` and `loss`")
  return resolved(stored, argument)


def resolved(stored: Mapping[str, Any], name: str) -> ConfigDict:
  """The config that the content of a `config.json` stands for; `name` says whose it is in errors.

  Raises:
    InputError: a key or a value that this version does not have.

  """
  config = base.get_config()
  whole = ["model", "loss"]
  encoder = stored.get("encoder", {})
  if isinstance(encoder, dict) and set(encoder) - set(config.encoder):
    whole.append("encoder")  # of another kind than base's: `presets.static` and others
  for key, value in sorted(stored.items(), key=lambda entry: entry[0] not in whole):
    try:
      if key in whole:
        config[key] = ConfigDict(_tuples(value))
      else:
        config.lock()
        config.update({key: _tuples(value)})
    except (KeyError, AttributeError, TypeError, ValueError) as error:
      text = " ".join(str(error).replace("\\n", " ").split())
      raise InputError(
        f"{name}: {key} = {json.dumps(value)} does not fit the keys of this "
        f"version (as2jax/config/base.py): {text}"
      ) from error
  if config.loss.get("epochs") == config.epochs:  # as in the job that was run: they change together
    config.loss.epochs = config.get_oneway_ref("epochs")
  return config.lock()


def _tuples(value):
  """Turns the lists of JSON back into tuples."""
  if isinstance(value, dict):
    return {key: _tuples(inner) for key, inner in value.items()}
  return tuple(map(_tuples, value)) if isinstance(value, list) else value
