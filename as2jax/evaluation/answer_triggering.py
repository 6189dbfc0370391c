"""Measure whether a ranker's best score says that its best candidate is right: answer or silence.

A system answers with its best candidate where that candidate's score reaches a threshold, fixed on
dev. Answer triggering (Yang et al. 2015, section 4) measures over all questions, also those without
an answer: precision (right answers / answers), recall (right answers / answerable questions), F1.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from as2jax.runtime.errors import InputError

BINS = 10  # of the calibration error, with equal numbers of questions
SAMPLES = 1000  # of the bootstrap over groups of questions


class Best(NamedTuple):
  """Hold the best candidate of each question, `[questions]`."""

  score: np.ndarray  # float64
  right: np.ndarray  # float64: the share of the best-scored candidates that is right
  answerable: np.ndarray  # bool: whether the question has a right candidate
  group: np.ndarray  # int, from 0: the number of the question's group


def measure(dev: Best, test: Best) -> dict[str, float]:
  """Fit probabilities (Platt) and threshold on dev; measure both on test.

  Returns:
    `threshold`, the score with the greatest F1 on dev; `precision`, `recall` and `f1`; `half_width`, of F1's 95 %
    interval by the bootstrap over groups of questions; `answered`, questions; `brier`, the mean squared difference
    of probability and rightness; `calibration_error`, their mean distance over bins of equal size.

  """
  if not len(dev.score) or not len(test.score):
    raise InputError("there is no question to calibrate on, or none to measure")
  probability = platt(dev.score, dev.right)(test.score)
  threshold = best_threshold(dev.score, dev.right, int(dev.answerable.sum()))
  answered = test.score >= threshold
  precision, recall, f1 = _precision_recall_f1(test, answered, np.ones(len(answered)))
  brier, error = errors(probability, test.right)
  return {
    "threshold": threshold,
    "precision": float(precision),
    "recall": float(recall),
    "f1": float(f1),
    "half_width": _bootstrap(test, answered),
    "answered": int(answered.sum()),
    "brier": brier,
    "calibration_error": error,
  }


def errors(probability: np.ndarray, right: np.ndarray) -> tuple[float, float]:
  """Return the Brier score and the calibration error of probabilities, see `measure`."""
  error = 0.0
  for part in np.array_split(np.argsort(probability, kind="stable"), min(BINS, len(probability))):
    error += len(part) * abs(probability[part].mean() - right[part].mean())
  return float(np.square(probability - right).mean()), float(error) / len(probability)


def platt(score: np.ndarray, right: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
  """Fit a logistic regression of `right` on the score; return scores -> probabilities.

  Targets are smoothed (Platt 1999): (N₊ + 1)/(N₊ + 2) for right, 1/(N₋ + 2) for wrong.
  """
  from scipy import optimize, special

  count = right.sum()
  high, low = (count + 1) / (count + 2), 1 / (len(right) - count + 2)
  target = low + right * (high - low)
  centre, scale = score.mean(), score.std() or 1.0
  x = np.stack([(score - centre) / scale, np.ones(len(score))], axis=1)

  def loss(weights):
    logits = x @ weights
    return np.sum(np.logaddexp(0, logits) - target * logits)

  def gradient(weights):
    return x.T @ (special.expit(x @ weights) - target)

  fitted = optimize.minimize(loss, np.zeros(2), jac=gradient, options={"gtol": 1e-9}).x
  return lambda s: special.expit((s - centre) / scale * fitted[0] + fitted[1])


def best_threshold(score: np.ndarray, right: np.ndarray, due: float) -> float:
  """Return the highest score at and above which keeping has the greatest F1; `due`: the right ones in all."""
  order = np.argsort(-score, kind="stable")
  score, found = score[order], np.cumsum(right[order])
  last = np.append(score[1:] != score[:-1], True)  # of those with one score
  f1 = 2 * found / (np.arange(1, len(score) + 1) + max(due, 1))
  return float(score[np.argmax(np.where(last, f1, -1.0))])


def _precision_recall_f1(test: Best, answered: np.ndarray, weights: np.ndarray):
  """With weights of questions, `[questions]` or `[samples, questions]`."""
  right = weights @ (test.right * answered)
  predicted = weights @ answered.astype(np.float64)
  due = weights @ test.answerable.astype(np.float64)
  f1 = 2 * right / np.maximum(predicted + due, 1)
  return right / np.maximum(predicted, 1), right / np.maximum(due, 1), f1


def _bootstrap(test: Best, answered: np.ndarray) -> float:
  """Return half the width of F1's 95 % interval over resampled groups of questions."""
  count = int(test.group.max()) + 1
  drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), SAMPLES)
  weights = drawn[:, test.group]
  low, high = np.quantile(_precision_recall_f1(test, answered, weights)[2], [0.025, 0.975])
  return float(high - low) / 2
