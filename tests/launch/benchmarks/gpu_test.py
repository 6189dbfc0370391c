"""The benchmark of accelerators: its cases run anywhere, and its programs lower for CUDA."""

import json

import jax
import numpy as np
import pytest
import tiny_encoders

from launch.benchmarks import gpu, jax_side, workload
from launch.benchmarks.workload import forward_flops

FAMILIES = ("bert", "modernbert")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
  """Tiny encoders in place of the published ones."""
  with pytest.MonkeyPatch.context() as patch:
    folder = tmp_path_factory.mktemp("shapes")
    folders = {name: str(tiny_encoders.folder(name, folder / name)) for name in FAMILIES}
    for name, shape in folders.items():
      patch.setitem(workload.SHAPES, name, shape)
    yield


def flags(*arguments):
  few = ["--questions=3", "--rows=4", "--dtype=float32", "--seconds=0.01", "--blocks=1"]
  return gpu.parse([*few, *arguments])


def test_lengths_are_distributed_as_wikiqas(shapes):
  work = gpu.workload(
    "bert", "encode", gpu.parse(["--questions=200", "--cases=bert:encode"]), "plain"
  )
  lengths = np.diff(work.offsets)
  assert len(lengths) == 200 * (gpu.CANDIDATES + 1)
  actual = np.quantile(lengths, (0.25, 0.5, 0.75))
  np.testing.assert_allclose(actual, [gpu.SENTENCE[i] for i in (5, 10, 15)], rtol=0.15)
  assert work.whole.tokens == lengths.sum() and work.whole.units == len(lengths)


SLOW = [(s, f) for s in gpu.SYSTEMS for f in FAMILIES if (s, f) != ("score", "modernbert")]


@pytest.mark.parametrize(
  "system, family",
  [("score", "modernbert"), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_programs_lower_for_cuda(shapes, family, system):
  side = jax_side.side(gpu.workload(family, system, flags("--cases=bert:encode"), "plain"))
  placed = side.place(side.batches[0])
  if system in jax_side.PREDICTING:
    arguments = (side.variables, placed)
  else:
    seeds = np.zeros(1, np.uint32)
    arguments = (side.state, placed, seeds, np.ones(1, np.float32), np.ones(1, bool))
  text = side.function.trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
  assert "stablehlo.dot_general" in text


@pytest.mark.slow
def test_both_sides_are_measured(shapes, capsys, tmp_path):
  pytest.importorskip("torch", reason="torch is not installed")
  target = tmp_path / "rows.json"
  arguments = ["--cases=bert:score,modernbert:triplet", f"--json={target}"]
  few = ["--questions=2", "--rows=2", "--dtype=float32", "--seconds=0.01", "--blocks=1"]
  assert gpu.main([*few, *arguments]) == 0
  rows = json.loads(target.read_text())["rows"]
  assert [(row["case"], row["side"].partition(" (")[0]) for row in rows] == [
    (case, side)
    for case in ("bert:score", "modernbert:triplet")
    for side in ("as2jax, plain attention", "PyTorch")
  ]
  for row in rows:
    assert row["tokens_per_second"] > 0 and 0 < row["mfu"] < 1
    ours = row["side"].startswith("as2jax")
    assert (0 < row["busy"] <= 1) if ours else row["busy"] is None
  assert jax.devices()[0].device_kind in capsys.readouterr().out


def test_memory_is_told_of_a_side_alone_that_had_more_than_those_before(monkeypatch):
  peaks = iter([0, 3 << 30, 3 << 30, 3 << 30])
  monkeypatch.setattr(gpu, "_peak", lambda: next(peaks))
  side = type("Side", (), {"warm_up": lambda self: None})()
  assert [gpu._warmed_up(side), gpu._warmed_up(side)] == [3 << 30, 0]
  row = {"case": "minilm:encode", "side": "as2jax", "units_per_second": 1.0, "mfu": 0.5}
  row |= {"tokens_per_second": 1.0, "busy": None}
  assert "50.0%     2.5" in gpu.text([{**row, "gib": 2.5}], "a device", [])
  assert gpu.text([{**row, "gib": None}], "a device", []).rstrip().endswith("50.0%")


def test_cases_that_were_left_out_are_named():
  assert gpu.text([], "a device", ["minilm:encode"]).endswith("(--minutes): minilm:encode")


def test_a_gated_layer_counts_three_products():
  sizes = {"hidden_size": 4, "intermediate_size": 8, "num_layers": 2, "name": "modernbert"}
  n, d, f = 5, 4, 8
  assert forward_flops(sizes, [n]) == 2 * (n * (8 * d * d + 6 * d * f) + 4 * n * n * d)


def test_unknown_cases_are_refused(capsys):
  with pytest.raises(SystemExit):
    gpu.parse(["--cases=zebra:score"])
  assert "zebra:score is no SHAPE:SYSTEM" in capsys.readouterr().err
