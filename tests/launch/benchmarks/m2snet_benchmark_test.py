"""The benchmark of M²S-Net: all sides do the same pairs, and PyTorch's has our loss."""

import json

import jax
import numpy as np
import pytest

pytest.importorskip("torch")

from launch.benchmarks import benchmark, jax_side, torch_side, workload  # noqa: E402

FLAGS = ["--system=m2snet", "--row=2", "--data=sample"]


@pytest.mark.slow
def test_one_seed_several_and_pytorch(tmp_path, monkeypatch):
  monkeypatch.setattr(jax_side, "matmul_peak", lambda dtype: 1e9)
  out = tmp_path / "out.json"
  assert benchmark.main([*FLAGS, "--seconds=0", "--blocks=1", "--seeds=2", f"--json={out}"]) == 0
  jax.config.update("jax_enable_compilation_cache", True)
  result = json.loads(out.read_text())
  assert result["sides"] == ["as2jax", "as2jax, 2 seeds", "torch"]
  examples = {result[side]["epoch"]["examples"] for side in result["sides"]}
  assert len(examples) == 1 and result["torch"]["ratio"] > 0
  one, two = (r["examples"] for r in result["blocks"][:2])
  assert two > one


def test_pytorchs_side_begins_with_our_weights():
  work = workload.from_config(benchmark.config_of(benchmark.parse(FLAGS)), "m2snet")
  ours = jax_side.side(work)
  theirs = torch_side.side(work, ours.params(), 1)
  embedding = theirs.model.embedding.weight.detach().numpy()
  np.testing.assert_array_equal(embedding, ours.params()[0]["encoder"]["embeddings"]["word"])
  assert np.isfinite(float(theirs.loss(theirs.plan(0)[0]).detach()))
