"""M²S-Net through the loop, on the sample: a whole run, a stopped one, ranking from disk."""

import json

import numpy as np
import pytest
import tiny

from as2jax.data.datasets import dataset
from as2jax.data.text import word_tokenizer
from as2jax.inference import apply
from as2jax.training import loop
from as2jax.training.loop import train_and_evaluate
from configs import trecqa_m2snet


class Killed(Exception):
  pass


@pytest.fixture
def config(tmp_path):
  """A small M²S-Net on the sample, over random vectors of its more frequent words."""
  data = dataset.load("sample")
  counts = word_tokenizer.count((q.text for q in data.splits["train"]), lower=True, treebank=True)
  rng = np.random.default_rng(0)
  vectors = tmp_path / "vectors.txt"
  vectors.write_text(
    "".join(
      f"{word} {' '.join(f'{x:.3f}' for x in rng.normal(size=6))}\n"
      for word in word_tokenizer.by_frequency(counts)
      if counts[word] > 1
    )
  )
  made = trecqa_m2snet.get_config("2,sample")
  made.encoder.vectors = str(vectors)
  made.model.update(
    {"question_length": 12, "candidate_length": 14, "filter_size": 3, "filters": (4, 6)}
  )
  made.batch.update({"row_lengths": (14,), "examples": 16, "predict_rows": 64, "shards": 2})
  made.data.update({"max_length": 14, "train_fraction": 0.15})
  made.epochs, made.checkpoint.steps, made.log.steps = 2, 3, 3
  made.log.tensorboard, made.compilation_cache = False, "off"
  return made.lock()


def test_a_run_and_a_stopped_one_end_alike_and_rank_from_disk(config, tmp_path, monkeypatch):
  whole, stopped = tmp_path / "whole", tmp_path / "stopped"
  content = train_and_evaluate(config, whole)
  assert content["metrics"]["map[sample-clean/test]"]["questions"] > 30
  rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
  assert all({"bce", "metric_penalty"} <= set(r) for r in rows if "loss" in r)
  assert content["execution"]["compilations_of_step"] == 1

  add, count = loop.StepLog.add, [0]

  def stop(self, step, *rest):
    count[0] += 1
    if count[0] > 4:
      raise Killed
    add(self, step, *rest)

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
  assert apply.evaluate(config, whole)["metrics"] == content["metrics"]
