"""Measure what rankers keep of documents, and what of the answers is left (`as2jax lab pruning`).

Threshold and probabilities are fitted on dev, everything else is measured on another split, from the rankings that finished
runs hold: nothing is ranked. Figures are means over seeds; ± is half of the 95 % interval by the bootstrap over groups.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath

from as2jax.evaluation import calibration, results, run_scores
from as2jax.evaluation.calibration import Calibration, Candidates, fitted_on, of_run, ranked_by
from as2jax.runtime.errors import InputError

SHARES = (0.1, 0.2, 0.4)  # of the sentences, kept over all documents
LEGEND = (
  "Sentences: precision, recall and F1 of those at or above the threshold of best F1 on dev (or what was held out of training to "
  "select by). Kept: their share of all; answers: the "
  "share of answerable questions that keep a right one; at 10 % …: the same where the best tenth over all questions is kept. "
  "Triggering: WikiQA's F1 of answering with the best sentence or not at all. Brier and ECE (calibration error): of each "
  "sentence's probability; on dev cross-fitted."
)
Ratio = tuple[np.ndarray, np.ndarray]  # numerators and denominators, of each group


def ratios(dev: Calibration, test: Candidates) -> dict[str, Ratio]:
  """Return measures as sums over the questions of each group, `[groups]`."""
  count = int(test.group.max()) + 1
  kept = (test.score >= dev.threshold()).astype(np.float64)

  def summed(values: np.ndarray, group: np.ndarray = test.group) -> np.ndarray:
    return np.bincount(group, values, count)

  right, kept_right = summed(test.right), summed(kept * test.right)
  best, of_dev = test.best, dev.best
  hit = np.bincount(test.question, kept * test.right) > 0
  least = calibration.best_threshold(of_dev.score, of_dev.right, of_dev.answerable.sum())
  told = (best.score >= least).astype(np.float64)
  due = summed(best.answerable, best.group)
  return {
    "precision": (kept_right, summed(kept)),
    "recall": (kept_right, right),
    "F1": (2 * kept_right, summed(kept) + right),
    "kept": (summed(kept), summed(np.ones(len(kept)))),
    "answers": (summed(hit, best.group), due),
    "triggering": (2 * summed(told * best.right, best.group), summed(told, best.group) + due),
  }


def curve(test: Candidates, shares: Sequence[float] = SHARES) -> list[float]:
  """Return the share of answerable questions that keep a right sentence, by shares kept.

  One threshold holds for all questions; between two scores (ties) the share is interpolated.
  """
  top = np.full(test.question.max() + 1, -np.inf)
  of_right = test.right > 0
  np.maximum.at(top, test.question[of_right], test.score[of_right])
  top = np.sort(top[np.isfinite(top)])
  every = np.sort(test.score)
  thresholds = np.unique(every)[::-1]
  kept = 1 - np.searchsorted(every, thresholds) / len(every)
  answers = 1 - np.searchsorted(top, thresholds) / len(top)
  return np.interp(shares, [0, *kept], [0, *answers]).tolist()


def row(pairs: Sequence[tuple[Calibration, Candidates]]) -> dict[str, str]:
  """Return the figures of a system, of dev's and test's candidates a seed."""
  of_seeds = [ratios(dev, test) for dev, test in pairs]
  groups = len(next(iter(of_seeds[0].values()))[0])
  weights = calibration.resampled(groups)
  cells = {"seeds": f"{len(pairs)}"}
  for name in of_seeds[0]:
    values, drawn = [], np.zeros(len(weights))
    for of_seed in of_seeds:
      over, under = of_seed[name]
      values.append(over.sum() / max(under.sum(), 1))
      drawn += (weights @ over) / np.maximum(weights @ under, 1) / len(of_seeds)
    low, high = np.quantile(drawn, [0.025, 0.975])
    width = "" if name in ("precision", "recall", "kept") else f" ± {(high - low) / 2:.3f}"
    cells[name] = f"{np.mean(values):.3f}{width}"
  curves = np.mean([curve(test) for _, test in pairs], axis=0)
  for share, answers in zip(SHARES, curves, strict=True):
    cells[f"at {share:.0%}".replace("%", " %")] = f"{answers:.3f}"
  fitted = {"Brier, dev": [], "Brier": [], "ECE": []}
  for dev, test in pairs:
    fitted["Brier, dev"].append(calibration.errors(dev.cross_fitted, dev.right)[0])
    brier, error = calibration.errors(dev.probability(test.score), test.right)
    fitted["Brier"].append(brier)
    fitted["ECE"].append(error)
  return cells | {name: f"{np.mean(values):.3f}" for name, values in fitted.items()}


def _pairs(place: str, judge: str, split: str) -> list[tuple[Calibration, Candidates]]:
  """Return the candidates of dev and of a split, of each seed of a run or of two run files."""
  files = place.split(",")
  if len(files) == 2 and not epath.Path(place).exists():
    folder, seeds = judge, [_seeds(judge)[0]]
  else:
    folder, seeds, files = place, _seeds(place), ["", ""]
  found = []
  if fitted_on(folder) == split:
    raise InputError(f"{folder}: thresholds are fitted on {split}: measure another split")
  for seed in seeds:
    try:
      dev = of_run(folder, seed, files[0])
    except InputError as error:
      raise InputError(f"{place}, seed {seed}: {error}: leave it out") from error
    test = ranked_by(folder, split, seed, files[1])
    if dev is None or test is None:
      raise InputError(
        f"{folder} did not rank candidates of dev and {split}: give runs that evaluate both"
      )
    found.append((dev, test))
  return found


def _questions(folder: str, split: str) -> str | None:
  """Return the fingerprint of a split of a run."""
  return _content(folder)["data"]["splits"].get(split, {}).get("fingerprint")


def _seeds(folder: str) -> list[int]:
  return [outcome["seed"] for outcome in _content(folder)["seeds"]]


def _content(folder: str) -> dict:
  content = results.read(folder)
  if content is None:
    raise InputError(
      f"{folder} is no finished run: name a run first, then others or DEV.run,TEST.run"
    )
  return content


def table(systems: Sequence[str], split: str) -> list[Mapping[str, str]]:
  """Return a row a system: a finished run, or the run files of any other as `DEV.run,TEST.run`."""
  rows, judge = [], ""
  for system in systems:
    name, place = run_scores.named(system)
    judge = judge or place
    if epath.Path(place).is_dir() and _questions(place, split) != _questions(judge, split):
      raise InputError(
        f"{place} ranked other questions of {split} than {judge}: name runs of one data set"
      )
    rows.append({"system": name, **row(_pairs(place, judge, split))})
  return rows
