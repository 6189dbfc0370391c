"""Encoders with a part of their layers: the kept ones are the old ones, and what cannot be cut is refused."""

import json

import jax
import numpy as np
import pytest
import tiny_encoders
from format_cases import CONFIGS, module, tensors
from safetensors.numpy import load_file, save_file

import as2jax
from as2jax.commands import app
from as2jax.encoders.checkpoints import published_folder, sentence_folder
from as2jax.experiments import cut_layers
from as2jax.inference.export import export
from as2jax.runtime.errors import InputError


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_kept_layers_are_the_old_ones(kind, tmp_path):
  folder = tmp_path / "all"
  folder.mkdir()
  (folder / "config.json").write_text(json.dumps({"model_type": kind, **CONFIGS[kind]}))
  save_file(tensors(kind), folder / "model.safetensors")
  _, whole = module(folder)
  # Old files hold numbers beside the weights, which transformers would not take as floats.
  save_file({**tensors(kind), "position_ids": np.arange(3)}, folder / "model.safetensors")
  for name in ("README.md", "tokenizer.json"):
    (folder / name).write_text("{}")
  summary = cut_layers.cut(str(folder), tmp_path / "cut", [1])
  assert (summary["layers"], summary["of"]) == ([1], 2)
  _, kept = module(tmp_path / "cut")
  whole["layers"] = jax.tree.map(lambda x: x[1:], whole["layers"])
  jax.tree.map(np.testing.assert_array_equal, kept, whole)
  there = {path.name for path in (tmp_path / "cut").iterdir()}
  assert there == {"config.json", "model.safetensors", "tokenizer.json"}


def modernbert(folder, layers=5, every=3):
  """A folder with summary tensors of that many layers, 0, 3, … of them global."""
  config = {
    "model_type": "modernbert",
    "vocab_size": 9,
    "hidden_size": 4,
    "num_hidden_layers": layers,
  }
  config |= {"num_attention_heads": 2, "intermediate_size": 6, "max_position_embeddings": 16}
  config |= {"local_attention": 4, "global_attn_every_n_layers": every}
  config |= {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
  folder.mkdir()
  (folder / "config.json").write_text(json.dumps(config))
  weights = {
    f"model.layers.{i}.attn.Wo.weight": np.full((4, 4), i, np.float32) for i in range(layers)
  }
  save_file(
    weights | {"model.final_norm.weight": np.ones(4, np.float32)}, folder / "model.safetensors"
  )
  return str(folder)


def test_modernberts_kinds_of_attention_stay_where_they_are(tmp_path):
  source = modernbert(tmp_path / "all")
  summary = cut_layers.cut(source, tmp_path / "cut", [0, 2, 4])
  assert summary["of"] == 5
  kept = load_file(tmp_path / "cut" / "model.safetensors")
  assert [kept[f"model.layers.{i}.attn.Wo.weight"][0, 0] for i in range(3)] == [0, 2, 4]
  assert json.loads((tmp_path / "cut" / "config.json").read_text())["num_hidden_layers"] == 3
  for layers in ([1, 2], [0, 3], [0, 1, 2, 4]):
    with pytest.raises(InputError, match="every 3th layer"):
      cut_layers.cut(source, tmp_path / "no", layers)


@pytest.mark.parametrize("layers", [[], [1, 0], [0, 0], [0, 5], [-1, 2]])
def test_layers_that_are_not_there_are_refused(layers, tmp_path):
  with pytest.raises(InputError, match="has the layers 0 to 4; name some"):
    cut_layers.cut(modernbert(tmp_path / "all"), tmp_path / "cut", layers)
  assert not (tmp_path / "cut").exists()


def test_weights_that_are_not_the_configs_are_refused(tmp_path):
  source = modernbert(tmp_path / "all")
  config = json.loads((tmp_path / "all" / "config.json").read_text())
  (tmp_path / "all" / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 6}))
  with pytest.raises(InputError, match="layers 0, 1, 2, 3, 4, the config says 6 layers"):
    cut_layers.cut(source, tmp_path / "cut", [0, 1])


def test_the_layers_behind_a_transformer_stay(tmp_path):
  folder, cut = tiny_encoders.folder("bert", tmp_path / "all"), tmp_path / "cut"
  kernel = np.arange(32, dtype=np.float32).reshape(16, 2)
  published_folder.write_sentence_modules(
    folder, width=16, fields={"pooling": ("mean",), "dense": ((2, "tanh", False),), "normalize": True},
    params={"dense_0/kernel": kernel}, max_length=20, lower_case=False, similarity="cosine", version="x",
  )  # fmt: skip
  cut_layers.cut(str(folder), cut, [1])
  np.testing.assert_array_equal(sentence_folder.read(cut).params["dense_0/kernel"], kernel)


def test_nothing_half_written_is_left(tmp_path, monkeypatch):
  source = modernbert(tmp_path / "all")
  monkeypatch.setattr(cut_layers.published_folder, "write_tensors", lambda *_: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    cut_layers.cut(source, tmp_path / "cut", [0])
  assert not (tmp_path / "cut").exists()


def test_the_command_cuts_a_bi_encoder_that_then_ranks(finished_run, tmp_path, capsys):
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  export(finished_run("triplet"), whole)
  layers = json.loads((whole / "config.json").read_text())["num_hidden_layers"]
  command = ["lab", "cut", str(whole), "-o", str(cut), "--layers=0"]
  assert layers > 1 and app.run(command) == 0
  assert f"1 of {layers} layers" in capsys.readouterr().out
  assert len(as2jax.load(cut).rank("how are caves formed", ["a cave", "ice"])) == 2
  assert app.run(command) == 2 and "exists" in capsys.readouterr().err
  assert app.run([*command[:-1], "--layers=a"]) == 2 and "--layers=a" in capsys.readouterr().err
