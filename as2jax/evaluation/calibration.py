"""Probability that a candidate answers, and thresholds on its score, from the dev questions of a run.

All dev questions count, also those without an answer. Kept candidates are those at or above a threshold.
"""

import dataclasses
import functools
import re

import numpy as np
from etils import epath

from as2jax.data import holdout, trec_files
from as2jax.evaluation import results
from as2jax.evaluation.answer_triggering import SAMPLES, Best, best_threshold, platt
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError

TRIED = 400  # scores, at equal distances in rank
FOLDS = 5  # of groups of questions, for the figures of fits to others
_PRECISION = re.compile(r"precision=(0?\.\d+|1(?:\.0*)?)")


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
    weights = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), SAMPLES)
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
