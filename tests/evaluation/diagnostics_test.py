"""The diagnostics of a Cross-VAE: KL, active units and perplexity by hand, and those of a run."""

import json

import numpy as np
import pytest

from as2jax.evaluation import diagnostics


def side(mean, log_variance=None, **others):
  actual = {"mean": np.asarray(mean, np.float64), **{k: np.asarray(v) for k, v in others.items()}}
  return actual if log_variance is None else {**actual, "log_variance": np.asarray(log_variance)}


def test_numbers_by_hand():
  """Two texts, three dimensions: one that tells them apart, one only off the prior, one collapsed."""
  mean, log_variance = [[1, 2, 0.0], [-1, 2, 0.0]], np.zeros((2, 3))
  measured = {
    "question": side(
      mean, log_variance, words=[3, 1], all_words=[4, 4], log_likelihood=[-6.0, -2.0]
    ),
    "answer": side(
      np.zeros((2, 3)), log_variance, words=[2, 2], all_words=[2, 2], log_likelihood=[0.0, 0.0]
    ),
  }
  assert diagnostics.cross_vae(measured) == pytest.approx(
    {
      "active_units_question": 1,
      "kl_question": 0.5 + 2,
      "kl_active_dimensions_question": 2,
      "perplexity_question": np.exp(8 / 4),
      "words_not_generated_question": 0.5,
      "active_units_answer": 0,
      "kl_answer": 0,
      "kl_active_dimensions_answer": 0,
      "perplexity_answer": 1,
      "words_not_generated_answer": 0,
    }
  )


def test_dual_grus_have_a_variance_alone():
  measured = {
    name: side([[0.0, 1], [1, 1]], all_words=[1, 1], words=[1, 1])
    for name in ("question", "answer")
  }
  expected = {"active_units_question": 1, "active_units_answer": 1}
  assert diagnostics.cross_vae(measured) == expected


@pytest.mark.slow
def test_each_evaluation_of_a_run_has_its_numbers_and_examples(finished_run):
  run = finished_run("cross_vae")
  content = json.loads((run / "results.json").read_text())
  words = content["weights"]["words"]
  assert content["execution"]["compilations_of_step"] == 1
  assert words["size"] == words["output_size"] + words["read_types"] > words["output_size"]
  logged, rows = [], []
  for line in (run / "metrics.jsonl").read_text().splitlines():
    row = json.loads(line)
    (rows if "epoch" in row else logged).append(row)
  logged = [row for row in logged if "loss" in row]
  assert logged[0]["beta"] < 0.5 < logged[-1]["beta"]
  assert {"kl_question", "kl_answer", "perplexity_answer", "matching_positive"} <= set(logged[0])
  assert [row["epoch"] for row in rows] == [0, 1]
  assert rows[1]["perplexity_answer[dev]"] < rows[0]["perplexity_answer[dev]"]
  diagnosed, best = content["seeds"][0]["diagnostics"], rows[content["seeds"][0]["best_epoch"]]
  assert "words_not_generated_question[dev]" in diagnosed
  for name, value in diagnosed.items():
    assert value == pytest.approx(best[name], rel=1e-5)
