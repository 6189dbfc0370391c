"""Answer or stay silent: against brute force, other libraries and hand-made cases."""

import numpy as np
import pytest

from as2jax.evaluation import calibration
from as2jax.evaluation.calibration import Best, Candidates


def generated(count, seed):
  random = np.random.default_rng(seed)
  score = np.round(random.normal(size=count), 1)
  right = (random.random(count) < 1 / (1 + np.exp(-2 * score + 1))).astype(float)
  return Best(score, right, right + random.random(count) > 0.5, np.arange(count))


def test_the_best_candidate_is_right_by_the_part_of_ties_that_is():
  question = np.array([0, 0, 0, 1, 1])
  actual = Candidates(
    np.array([2.0, 2.0, 1.0, -1.0, -3.0]), np.array([1.0, 0, 0, 0, 0]), question, question
  ).best
  assert actual.score.tolist() == [2.0, -1.0] and actual.group.tolist() == [0, 1]
  assert actual.right.tolist() == [0.5, 0.0] and actual.answerable.tolist() == [True, False]


def test_precision_recall_and_f1_by_hand():
  dev = Best(np.array([1.0, 2.0]), np.array([0.0, 1.0]), np.array([False, True]), np.arange(2))
  test = Best(
    np.array([3.0, 2.5, 2.0, 1.0, 0.0]),
    np.array([1.0, 0.0, 1.0, 1.0, 0.0]),
    np.array([True, False, True, True, True]),
    np.arange(5),
  )
  actual = calibration.measure(dev, test)
  assert actual["threshold"] == 2.0 and actual["answered"] == 3
  assert (actual["precision"], actual["recall"]) == pytest.approx((2 / 3, 2 / 4))
  assert actual["f1"] == pytest.approx(2 * (2 / 3 * 1 / 2) / (2 / 3 + 1 / 2))
  assert actual["half_width"] > 0


def test_platt_is_the_logistic_regression_of_another_library():
  linear_model = pytest.importorskip("sklearn.linear_model")
  data = generated(200, 2)
  positive = data.right.sum()
  high, low = (positive + 1) / (positive + 2), 1 / (200 - positive + 2)
  target = np.where(data.right > 0, high, low)
  model = linear_model.LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
  twice = np.concatenate([data.score, data.score])[:, None]
  model.fit(twice, np.repeat([1, 0], 200), sample_weight=np.concatenate([target, 1 - target]))
  at = np.linspace(-4, 4, 30)
  theirs = model.predict_proba(at[:, None])[:, 1]
  ours = calibration.platt(data.score, data.right)(at)
  np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_platt_is_finite_where_scores_part_right_from_wrong(scale):
  score = scale * np.arange(10.0)
  actual = calibration.platt(score, (score > 4.5 * scale).astype(float))(score)
  assert np.isfinite(actual).all() and (np.diff(actual) >= 0).all()
  assert actual[0] < 0.2 and actual[-1] > 0.8
