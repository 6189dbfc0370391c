"""The config that a run resolved to: --config=configs/rerun.py:runs/x/config.json."""

import json

from configs import base
from ml_collections import ConfigDict


def get_config(argument=None):
  if not argument:
    raise ValueError("name the run's config: --config=configs/rerun.py:runs/x/config.json")
  with open(argument, encoding="utf-8") as file:
    found = json.load(file)
  config = base.get_config()
  for section in ("model", "loss"):
    config[section] = ConfigDict(found.pop(section))
  for key, value in found.items():
    for name, inner in (value.items() if isinstance(value, dict) else [(None, value)]):
      inner = tuple(inner) if isinstance(inner, list) else inner
      if name is None:
        config[key] = inner
      else:
        config[key][name] = inner
  return config
