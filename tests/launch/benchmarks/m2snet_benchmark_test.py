"""The benchmark of M²S-Net: both sides do the same pairs, and it reports each of them."""

import json

import pytest

from launch.benchmarks import m2snet


def test_a_short_one(capsys):
  pytest.importorskip("torch")
  m2snet.main(["--row=cos", "--data=sample", "--seconds=0", "--blocks=1", "--seeds=2"])
  *sides, together, torch = map(json.loads, capsys.readouterr().out.splitlines())
  assert [s["side"] for s in sides] == ["as2jax, 1 in a step", "as2jax, 2 in a step", "torch"]
  assert len({s["pairs"] for s in sides}) == 1
  assert all(s["pairs_per_second"][0] > 0 and s["cpu_ms_per_pair"][0] > 0 for s in sides)
  assert together["median"] > 0 and torch["ratio"] == "as2jax, 1 in a step / torch"
