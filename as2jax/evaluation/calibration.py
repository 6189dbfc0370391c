"""Probability that a candidate answers, thresholds on its score, and answer or silence, from dev questions.

All dev questions count, also those without an answer. Kept candidates are those at or above a threshold.
Answer triggering (Yang et al. 2015, section 4): a system answers with its best candidate where the score of
that reaches a threshold. Over all questions precision is right answers / answers, recall right answers /
answerable questions.
"""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from etils import epath

from as2jax.data import holdout, trec_files
from as2jax.evaluation import results
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError

BINS = 10  # of the calibration error, with equal numbers of questions
SAMPLES = 1000  # of the bootstrap over groups of questions
TRIED = 400  # scores, at equal distances in rank
FOLDS = 5  # of groups of questions, for the figures of fits to others
_PRECISION = re.compile(r"precision=(0?\.\d+|1(?:\.0*)?)")


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


def resampled(groups: int) -> np.ndarray:
  """Return how often the bootstrap draws each group, `[SAMPLES, groups]`, the same at each call."""
  return np.random.default_rng(0).multinomial(groups, np.full(groups, 1 / groups), SAMPLES)


def _bootstrap(test: Best, answered: np.ndarray) -> float:
  """Return half the width of F1's 95 % interval over resampled groups of questions."""
  weights = resampled(int(test.group.max()) + 1)[:, test.group]
  low, high = np.quantile(_precision_recall_f1(test, answered, weights)[2], [0.025, 0.975])
  return float(high - low) / 2


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
  """Holds ranked candidates: score, whether right, question and its group from 0, `[candidates]`."""

  score: np.ndarray
  right: np.ndarray
  question: np.ndarray
  group: np.ndarray

  @functools.cached_property
  def best(self) -> Best:
    """Returns the best candidate of each question; of equal ones the share that is right."""
    top = np.full(self.question.max() + 1, -np.inf)
    np.maximum.at(top, self.question, self.score)
    first = (self.score == top[self.question]).astype(np.float64)
    group = np.zeros(len(top), np.int64)
    group[self.question] = self.group
    right = np.bincount(self.question, self.right * first) / np.bincount(self.question, first)
    return Best(top, right, np.bincount(self.question, self.right) > 0, group)


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration(Candidates):
  """Derives probabilities and thresholds from the candidates of dev."""

  def __post_init__(self):
    low, high = platt(self.score, self.right)(np.asarray([self.score.min(), self.score.max()]))
    if not self.right.any() or self.right.all() or not low < high:
      raise InputError(
        "on the questions that selected it a higher score does not mean a right candidate, so that no probability "
        "follows from it"
      )

  @functools.cached_property
  def probability(self):
    """Returns the function from scores to probabilities (Platt 1999), fitted to all candidates."""
    return platt(self.score, self.right)

  @functools.cached_property
  def cross_fitted(self) -> np.ndarray:
    """Returns the probabilities of the dev candidates, each from a fit to the other folds of groups."""
    fold, found = np.unique(self.group, return_inverse=True)[1] % FOLDS, np.zeros(len(self.score))
    for one in np.unique(fold):
      inside = fold == one
      if inside.all():
        return self.probability(self.score)
      found[inside] = platt(self.score[~inside], self.right[~inside])(self.score[inside])
    return found

  def threshold(self, which: str = "calibrated") -> float:
    """Returns the score of best F1 of the kept candidates (`calibrated`), or the least of `precision=P`.

    The latter is the lowest at which the lower bound of precision over groups reaches P; infinite where
    none does.
    """
    precision = asked_precision(which)
    if precision is None:
      return best_threshold(self.score, self.right, self.right.sum())
    scores = np.unique(np.quantile(self.score, np.linspace(0, 1, TRIED), method="nearest"))
    for score in scores.tolist():
      if self._precision_bound(score) >= precision:
        return score
    return float("inf")

  def _precision_bound(self, score: float) -> float:
    """Returns the 2.5 % bound of precision: the lesser of the bootstrap over groups and Clopper-Pearson's.

    The latter is of a group's mean, so that a few groups without an error do not prove that there is none.
    """
    from scipy import special

    kept, count = self.score >= score, int(self.group.max()) + 1
    weights = resampled(count)
    right = np.bincount(self.group[kept], self.right[kept], count)
    sizes = np.bincount(self.group[kept], minlength=count)
    drawn = (weights @ right) / np.maximum(weights @ sizes, 1)
    groups = int((sizes > 0).sum())
    share = (right[sizes > 0] / sizes[sizes > 0]).sum()
    exact = special.betaincinv(share, groups - share + 1, 0.025) if share else 0.0
    return float(min(np.quantile(drawn, 0.025), exact))


def asked_precision(which: str) -> float | None:
  """Returns P of the threshold `precision=P`, None of `calibrated`; InputError for another."""
  if which == "calibrated":
    return None
  if not (asked := _PRECISION.fullmatch(which)):
    raise InputError(f"threshold {which!r}: give calibrated, precision=0.9 or a score")
  return float(asked[1])


def of_run(folder: epath.PathLike, seed: int, other: epath.PathLike = "") -> Calibration | None:
  """Returns the calibration of one seed of a finished run; None where it did not rank `fitted_on`."""
  ranked = ranked_by(folder, fitted_on(folder), seed, other)
  return None if ranked is None else Calibration(**vars(ranked))


def fitted_on(folder: epath.PathLike) -> str:
  """Returns the split that probabilities of a run are fitted on: the held-out questions, or else dev."""
  content = results.read(folder)
  return holdout.NAME if content and holdout.NAME in results.splits_of(content) else "dev"


def ranked_by(
  folder: epath.PathLike, split: str, seed: int, other: epath.PathLike = ""
) -> Candidates | None:
  """Returns what one seed of a finished run ranked of a split; None where that are no candidates.

  With `other`, a TREC run file, the candidates have its scores. InputError: it lacks one of them.
  """
  content = results.read(folder)
  if content is None or content["task"] != "rerank" or split not in results.splits_of(content):
    return None
  seeds = [outcome["seed"] for outcome in content["seeds"]]
  place = results.folder("", split, seed, seeds)
  if not (ranked := bound.file(folder, place / "run.trec")).exists():
    return None
  run = trec_files.read_run(ranked)
  qrels = trec_files.read_qrels(bound.file(folder, place / "qrels.trec"))
  names, table = trec_files.read_per_question(bound.file(folder, place / "per_question.tsv"))
  groups = dict(zip(names, table.get("group", np.arange(len(names))).tolist(), strict=True))
  scores = trec_files.read_run(other) if other else run
  score, right, question, group = [], [], [], []
  for number, name in enumerate(run):
    for candidate in run[name]:
      if candidate not in scores.get(name, {}):
        raise InputError(
          f"{other} does not rank candidate {candidate!r} of question {name!r}, as {folder} does"
        )
      score.append(scores[name][candidate])
      right.append(qrels.get(name, {}).get(candidate, 0) == 1)
      question.append(number)
      group.append(int(groups[name]))
  _, numbers = np.unique(np.asarray(group), return_inverse=True)
  rounded = np.asarray(score, np.float64).astype(np.float32).astype(np.float64)
  return Candidates(rounded, np.asarray(right, np.float64), np.asarray(question), numbers)
