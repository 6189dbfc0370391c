"""M²S-Net through the loop, on the sample: a stopped run ends like a whole one; ranking from disk."""

import json

import numpy as np
import pytest
import tiny
import tiny_systems

from as2jax.inference import apply
from as2jax.training import loop
from as2jax.training.loop import train_and_evaluate


class Killed(Exception):
  pass


@pytest.mark.slow
def test_a_stopped_run_ends_like_a_whole_one_and_ranks_from_disk(
  finished_run, tmp_path, monkeypatch
):
  whole, stopped = finished_run("m2snet"), tmp_path / "stopped"
  content = json.loads((whole / "results.json").read_text())
  assert content["metrics"]["map[sample-clean/test]"]["questions"] > 30
  rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
  losses = [r for r in rows if "loss" in r]
  assert len(losses) > 2 and all({"bce", "metric_penalty"} <= set(r) for r in losses)
  assert content["execution"]["compilations_of_step"] == 1

  add, count = loop.StepLog.add, [0]

  def stop(self, step, *rest):
    count[0] += 1
    if count[0] > 2:
      raise Killed
    add(self, step, *rest)

  config = tiny_systems.config("m2snet", checkpoint__steps=1)
  with monkeypatch.context() as patch:
    patch.setattr(loop.StepLog, "add", stop)
    with pytest.raises(Killed):
      train_and_evaluate(config, stopped)
  again = train_and_evaluate(config, stopped)
  assert again["metrics"] == content["metrics"]
  one, other = map(tiny.best_parameters, (whole, stopped))
  assert set(one) == set(other) and {"grid/U", "grid/B", "encoder/embeddings/word"} <= set(one)
  for path, value in one.items():
    np.testing.assert_array_equal(value, other[path], path)
  # The running statistics come from the checkpoint, too: else no number would be the same.
  with config.unlocked():
    config.mode = "evaluate"
  assert apply.evaluate(config, stopped)["metrics"] == content["metrics"]
