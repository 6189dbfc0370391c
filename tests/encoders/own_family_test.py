"""A family of a user's file is read, ranks, trains and is exported like those of as2jax."""

import dataclasses
import json

import numpy as np
import pytest
import tiny
import tiny_encoders

from as2jax.encoders import bert, hub, open_encoder, transformer_folder, weights
from as2jax.encoders import family as families
from as2jax.encoders.bert import BertEncoder
from as2jax.inference import modes
from as2jax.inference.export import export
from as2jax.runtime import registry


class TinyEncoder(BertEncoder):
  """BERT's network, whose published files call everything otherwise."""


FAMILY = families.Transformer(
  name="tiny_family",
  module=TinyEncoder,
  token="cls",
  keys=tuple(dataclasses.replace(key, name=f"my_{key.name}") for key in (*bert.KEYS, bert.TYPES)),
  width="my_hidden_size",
  heads="my_num_attention_heads",
  names={ours: f"mine.{theirs}" for ours, theirs in bert.NAMES.items()},
  classes="Tiny",
  prefix="tiny.",
  ignored=bert.IGNORED,
  special=bert.BERT.special,
  typed=True,
  head={"pooler": "tiny.pooler", "head": "tiny.head"},
  published={"me/tiny": {f"my_{k}": v or 100 for k, v in tiny.SIZES.items() if k != "model_type"}},
)


@pytest.fixture
def family(monkeypatch):
  monkeypatch.setattr(families, "_FAMILIES", dict(families._FAMILIES))
  monkeypatch.setitem(registry.ENCODERS, FAMILY.name, f"{__name__}:TinyEncoder")
  return families.register(FAMILY)


@pytest.fixture
def folder(family, tmp_path):
  """A folder of the family with the weights of a tiny BERT."""
  base, path = tiny_encoders.folder("bert", tmp_path / "bert"), tmp_path / "mine"
  encoder = tiny_encoders.encoder(base)
  params = transformer_folder.load_params(base, encoder)
  path.mkdir()
  (path / "vocab.txt").write_text((base / "vocab.txt").read_text())
  fields = transformer_folder.read_family(base)[1]
  config = family.config(TinyEncoder(**fields))
  (path / "config.json").write_text(json.dumps(config))
  weights.write_tensors(weights.to_tensors(params, family=family), path)
  return path


def test_a_family_of_a_users_file_is_read_trains_ranks_and_is_exported(family, folder, tmp_path):
  found, fields = transformer_folder.read_family(folder)
  assert found is family and families.of(TinyEncoder(**fields)) is family
  assert families.of(BertEncoder(**fields)) is bert.BERT
  config = tiny.config(
    "siamese", "grouped", epochs=1, data__train_fraction=0.1, encoder__pretrained=str(folder)
  )
  modes.run(config, str(tmp_path / "run"))
  results = json.loads((tmp_path / "run" / "results.json").read_text())
  assert results["weights"]["family"] == family.name and results["seeds"][0]["steps"] > 0
  exported = export(tmp_path / "run", tmp_path / "exported")
  stated = json.loads((exported / hub.CONFIG).read_text())
  assert (stated["model_type"], stated["architectures"]) == (family.name, ["TinyModel"])
  again = transformer_folder.load_params(exported, TinyEncoder(**fields))
  moved = tiny.best_parameters(tmp_path / "run")
  for path, value in weights.flat(again).items():
    if f"encoder/{path}" in moved:
      np.testing.assert_allclose(value, np.squeeze(moved[f"encoder/{path}"]), rtol=1e-6)


def test_what_is_published_by_name_is_described(family):
  section = {"name": "auto", "pretrained": "me/tiny", "dtype": "float32"}
  source = open_encoder.describe(section)
  assert source.module.hidden_size == 16 and source.model_fields == {"token": "cls"}
