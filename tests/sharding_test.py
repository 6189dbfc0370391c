"""One device and eight give the same numbers; checkpoints move between them; rules by hand."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

import tiny
from as2jax import sharding
from as2jax.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Three steps and an evaluation of the config named, on the number of devices given; again, if told.
PROGRAM = """
import sys, json, jax
devices, model, folder, epochs, sharding = sys.argv[1:6]
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", int(devices))
jax.config.update("jax_compilation_cache_dir", sys.argv[6])
import tiny
from as2jax.train import train_and_evaluate
words = ("grouped",) if model == "triplet" else ()
config = tiny.config(model, *words, epochs=int(epochs), batch__shards=8, batch__rows=64,
                     batch__examples=4096 if words else 64, batch__predict_rows=64,
                     data__train_fraction=0.35, checkpoint__steps=1, log__steps=1,
                     sharding__fsdp=int(sharding))
assert jax.device_count() == int(devices)
train_and_evaluate(config, folder)
"""


def run(devices, model, folder, *, epochs=1, fsdp=1):
  env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
         "AS2JAX_TINY_ENCODER": tiny.encoder_folder()}
  cache = jax.config.jax_compilation_cache_dir or ""
  done = subprocess.run(
      [sys.executable, "-c", PROGRAM, str(devices), model, str(folder), str(epochs), str(fsdp), cache],
      env=env, capture_output=True, text=True, timeout=600)
  assert done.returncode == 0, done.stderr[-3000:]
  rows = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
  return rows, json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize("model,fsdp", [("triplet", 1), ("crossencoder", 1), ("triplet", 2)])
def test_eight_devices_give_the_numbers_of_one(tmp_path, model, fsdp):
  one, results_one = run(1, model, tmp_path / "one")
  eight, results_eight = run(8, model, tmp_path / "eight", fsdp=fsdp)
  assert len(one) == len(eight) >= 4
  losses = [(a["loss"], b["loss"]) for a, b in zip(one, eight) if "loss" in a]
  np.testing.assert_allclose(*zip(*losses[:3]), rtol=1e-5)
  for name, entry in results_one["metrics"].items():
    assert results_eight["metrics"][name]["mean"] == pytest.approx(entry["mean"], abs=1e-9), name
  assert results_eight["execution"]["devices"] == 8
  parameters = [tiny.best_parameters(tmp_path / name) for name in ("one", "eight")]
  for path, a in parameters[0].items():
    np.testing.assert_allclose(a, parameters[1][path], atol=1e-5, err_msg=path)


MESH = AbstractMesh((2, 4, 2), sharding.AXES, axis_types=(AxisType.Auto,) * 3)
P = PartitionSpec


@pytest.mark.parametrize("path,shape,want", [
    ("encoder/layers/attention/query/kernel", (1, 6, 384, 384), P(None, None, "fsdp", "tensor")),
    ("encoder/layers/attention/output/kernel", (1, 6, 384, 384), P(None, None, "tensor", "fsdp")),
    # 30,521 rows divide by nothing: the next spec shards the width instead.
    ("encoder/embeddings/word", (1, 30521, 384), P(None, None, "fsdp")),
    ("encoder/embeddings/word", (1, 30522, 384), P(None, "tensor", "fsdp")),
    ("encoder/layers/attention/query/bias", (1, 6, 384), P()),
    ("head/kernel", (1, 382, 2), P()),
])
def test_the_first_spec_that_divides_wins(path, shape, want):
  assert sharding.spec_for(path, shape, MESH) == want


def test_moments_follow_their_parameters():
  tree = {"mu": {"encoder/layers/attention/query/kernel": np.zeros((1, 6, 8, 8))},
          "count": np.zeros((1,))}
  mesh = sharding.make_mesh(fsdp=2, devices=jax.devices()[:2])
  found = sharding.tree_shardings(tree, mesh)
  assert found["mu"]["encoder/layers/attention/query/kernel"].spec == P(None, None, "fsdp", "tensor")
  assert found["count"].spec == P()


def test_shards_that_do_not_spread_are_refused():
  mesh = sharding.make_mesh(devices=jax.devices()[:2])
  sharding.check_shards(mesh, 4)
  with pytest.raises(InputError, match="batch.shards = 3 is not a multiple of the 2 devices"):
    sharding.check_shards(mesh, 3)
  with pytest.raises(InputError, match="does not divide 2 devices"):
    sharding.make_mesh(tensor=3, devices=jax.devices()[:2])
