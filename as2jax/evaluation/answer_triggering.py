"""Answer or stay silent: how far a ranker's best score says whether its best candidate is right.

A system answers a question with its best candidate where the score of that candidate is high enough,
and is silent elsewhere. WikiQA's answer triggering (Yang et al. 2015, section 4) measures, over all
questions, those without an answer among them: precision, the part of the answers that are right;
recall, the part of the questions with an answer that are answered rightly; and F1. The threshold is
fixed on dev. Where candidates tie for the best score, right counts as the part of them that is right,
as in `metrics` with `ties=expected`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from as2jax.data.record import Question
from as2jax.evaluation import significance
from as2jax.runtime.errors import InputError

CALIBRATIONS = ("platt", "isotonic")
BINS = 10  # of the reliability diagram, with equal numbers of questions
SAMPLES = 1000  # of the bootstrap over questions
Calibrate = Callable[[np.ndarray], np.ndarray]  # scores -> probabilities


@dataclasses.dataclass(frozen=True)
class Best:
  """The best candidate of each question.

  Attributes:
    score: `[questions]` float64.
    right: whether it is right, `[questions]` float64; a fraction where candidates tie.
    answerable: whether the question has a right candidate, `[questions]` bool.

  """

  score: np.ndarray
  right: np.ndarray
  answerable: np.ndarray


@dataclasses.dataclass(frozen=True)
class Bin:
  """Questions of like probability: the mean probability, the part that is right, its 95 % interval."""

  questions: int
  predicted: float
  right: float
  low: float
  high: float


@dataclasses.dataclass(frozen=True)
class Triggering:
  """What one seed of a system comes to on a split.

  Attributes:
    threshold: of the score, with the greatest F1 on dev.
    precision, recall, f1: at that threshold; half_width: of F1, by the bootstrap over questions.
    answered: how many questions are answered.
    brier: mean squared difference of probability and right; half_width_brier: over questions.
    calibration_error: mean distance of the bins' probability and right, weighted by questions.
    bins: of the reliability diagram.
    coverage, risk: `[questions]`: the part that is answered, by falling probability, and the part
      of these answers that is wrong; area: the mean of `risk`.

  """

  threshold: float
  precision: float
  recall: float
  f1: float
  half_width: float
  answered: int
  brier: float
  half_width_brier: float | None
  calibration_error: float
  bins: tuple[Bin, ...]
  coverage: np.ndarray
  risk: np.ndarray
  area: float


def best(questions: Sequence[Question], ranking: Mapping[str, Mapping[str, float]]) -> Best:
  """The best candidate of each question by a run file's scores, compared as float32.

  Raises:
    InputError: the ranking lacks a question or a candidate.

  """
  rows = []
  for question in questions:
    if not question.candidates:
      continue
    candidate_scores = ranking.get(question.id, {})
    lacking = [c.id for c in question.candidates if c.id not in candidate_scores]
    if lacking:
      raise InputError(f"question {question.id!r}: its candidate {lacking[0]!r} is not ranked")
    scores = np.asarray([candidate_scores[c.id] for c in question.candidates], np.float64).astype(
      np.float32
    )
    right = np.asarray([c.label == 1 for c in question.candidates])
    rows.append((float(scores.max()), right[scores == scores.max()].mean(), right.any()))
  score, right, answerable = np.asarray(rows, np.float64).reshape(-1, 3).T
  return Best(score, right, answerable > 0)


def measure(dev: Best, test: Best, *, calibration: str = "platt") -> Triggering:
  """Fits calibration and threshold on dev and measures both on test.

  Raises:
    InputError: another calibration, or a split without questions.

  """
  if calibration not in CALIBRATIONS:
    raise InputError(f"calibration = {calibration!r}: use one of {', '.join(CALIBRATIONS)}")
  if not len(dev.score) or not len(test.score):
    raise InputError("there is no question to calibrate on, or none to measure")
  probability = (platt if calibration == "platt" else isotonic)(dev.score, dev.right)(test.score)
  threshold = best_threshold(dev)
  answered = test.score >= threshold
  precision, recall, f1 = (float(x) for x in _f1(test, answered, np.ones(len(answered))))
  coverage, risk = risk_coverage(probability, test.right)
  bins = reliability(probability, test.right)
  error = sum(b.questions * abs(b.predicted - b.right) for b in bins) / len(test.score)
  squared = np.square(probability - test.right)
  return Triggering(
    threshold,
    precision,
    recall,
    f1,
    _bootstrap(test, answered),
    int(answered.sum()),
    float(squared.mean()),
    significance.half_width(squared),
    float(error),
    bins,
    coverage,
    risk,
    float(risk.mean()),
  )


def platt(score: np.ndarray, right: np.ndarray) -> Calibrate:
  """Logistic regression of `right` on the score, with Platt's (1999) smoothed targets.

  Targets are (N₊ + 1)/(N₊ + 2) for right and 1/(N₋ + 2) for wrong; a fraction lies between them.
  """
  count = right.sum()
  high, low = (count + 1) / (count + 2), 1 / (len(right) - count + 2)
  target = low + right * (high - low)
  centre, scale = float(score.mean()), float(score.std()) or 1.0
  x = np.stack([(score - centre) / scale, np.ones(len(score))], 1)
  weights = np.zeros(2)
  loss = lambda w: float(np.sum(np.logaddexp(0, x @ w) - target * (x @ w)))
  for _ in range(100):
    p = _sigmoid(x @ weights)
    gradient = x.T @ (p - target)
    hessian = (x * (p * (1 - p))[:, None]).T @ x + 1e-10 * np.eye(2)
    step, size = np.linalg.solve(hessian, gradient), 1.0
    while loss(weights - size * step) > loss(weights) and size > 1e-8:
      size /= 2
    weights = weights - size * step
    if np.abs(gradient).max() < 1e-9 * len(score):
      break
  return lambda s: _sigmoid((s - centre) / scale * weights[0] + weights[1])


def _sigmoid(x: np.ndarray) -> np.ndarray:
  return 0.5 * (1 + np.tanh(0.5 * x))


def isotonic(score: np.ndarray, right: np.ndarray) -> Calibrate:
  """The rising function of the score with the least squared error; straight between the scores."""
  from scipy.optimize import isotonic_regression

  values, place, counts = np.unique(score, return_inverse=True, return_counts=True)
  means = np.bincount(place, weights=right) / counts
  fitted = isotonic_regression(means, weights=counts).x
  return lambda s: np.interp(s, values, fitted)


def best_threshold(dev: Best) -> float:
  """The score at and above which answering gives the greatest F1 on dev; of equals the highest."""
  order = np.argsort(-dev.score, kind="stable")
  score, right = dev.score[order], np.cumsum(dev.right[order])
  last = np.append(score[1:] != score[:-1], True)  # of those with one score
  f1 = 2 * right / (np.arange(1, len(score) + 1) + max(int(dev.answerable.sum()), 1))
  return float(score[np.argmax(np.where(last, f1, -1.0))])


def _f1(test: Best, answered: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, ...]:
  """Precision, recall and F1 with weights of questions, `[questions]` or `[samples, questions]`."""
  right = weights @ (test.right * answered)
  predicted = weights @ answered.astype(np.float64)
  due = weights @ test.answerable.astype(np.float64)
  precision = right / np.maximum(predicted, 1)
  recall = right / np.maximum(due, 1)
  return precision, recall, 2 * right / np.maximum(predicted + due, 1)


def _bootstrap(test: Best, answered: np.ndarray) -> float:
  """Half the width of the 95 % interval of F1 over resampled questions."""
  count = len(answered)
  drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), SAMPLES)
  low, high = np.quantile(_f1(test, answered, drawn)[2], [0.025, 0.975])
  return float(high - low) / 2


def risk_coverage(probability: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Coverage and risk after each question, by falling probability; ties count as their mean."""
  _, place = np.unique(-probability, return_inverse=True)
  mean = (np.bincount(place, weights=right) / np.bincount(place))[place]
  order = np.argsort(place, kind="stable")
  number = np.arange(1, len(right) + 1)
  return number / len(right), 1 - np.cumsum(mean[order]) / number


def reliability(probability: np.ndarray, right: np.ndarray) -> tuple[Bin, ...]:
  """Bins of equal numbers of questions, with Wilson's (1927) 95 % interval."""
  order = np.argsort(probability, kind="stable")
  bins = []
  for part in np.array_split(order, min(BINS, len(order))):
    n, share = len(part), float(right[part].mean())
    z = 1.959963984540054
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    width = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = max(middle - width, 0.0), min(middle + width, 1.0)
    bins.append(Bin(n, float(probability[part].mean()), share, float(low), float(high)))
  return tuple(bins)
