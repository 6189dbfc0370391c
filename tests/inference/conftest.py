"""What the tests of exported models share: tiny runs, each trained once."""

import pytest
import tiny
import tiny_encoders

from as2jax.training.loop import train_and_evaluate


@pytest.fixture(scope="package")
def trained(tmp_path_factory):
  """run(family, model, **overrides) -> (folder of a finished run, its config), each made once."""
  folders, folder = {}, tmp_path_factory.mktemp("runs")

  def run(family, model, **overrides):
    key = (family, model, tuple(sorted(overrides.items())))
    if key not in folders:
      base = folder / family
      if not base.exists():
        tiny_encoders.folder(family, base)
      settings = {
        "encoder__pretrained": str(base),
        "data__train_fraction": 0.1,
        "optimizer__rate": 3e-3,
        "optimizer__warmup": 0.0,
        "data__max_length": 48,
        "evaluation__splits": ("dev",),
        **overrides,
      }
      config = tiny.config(model, "grouped", **settings)
      path = folder / f"run-{len(folders)}"
      train_and_evaluate(config, path)
      folders[key] = path, config
    return folders[key]

  return run
