"""Early stopping and the best evaluation, for each seed of a group."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from as2jax.data.datasets import holdout
from as2jax.data.datasets.dataset import Dataset
from as2jax.evaluation import metrics
from as2jax.runtime.errors import InputError


def check_selection(config: Any, dataset: Dataset) -> None:
  """Raises InputError where no question of the split that selects counts in the metric that selects.

  Of a pool, `evaluation.tasks.Retrieve` says so.
  """
  if config.evaluation.task != "rerank":
    return
  split = holdout.selection_split(config.data)
  labels = [np.asarray([c.label for c in q.candidates]) for q in dataset.splits[split]]
  if metrics.filter_mask(dataset.clean, labels).any():
    return
  both = " and one with label 0" * (dataset.clean == "both")
  held = split == holdout.NAME
  raise InputError(
    f"{dataset.name}: none of the {len(labels)} questions of the split {split} has a candidate with "
    f"label 1{both}, so that it cannot select the best epoch; "
    + (
      "raise data.holdout"
      if held
      else "label some, or hold training questions out in its place (data.holdout=0.1)"
    )
  )


@dataclasses.dataclass
class Tracker:
  """The state of early stopping between evaluations; saved with every checkpoint.

  Attributes:
    patience: evaluations without an improvement after which a seed stops.
    best: the best selection value of each seed, None before the first evaluation.
    best_step, best_epoch: the step and the epoch of the best value.
    waited: evaluations since the best one.
    active: whether each seed still trains.
    saved_step: the step of the last checkpoint of best parameters.

  """

  patience: int
  best: list[float | None]
  best_step: list[int]
  best_epoch: list[int]
  waited: list[int]
  active: list[bool]
  saved_step: int = -1

  @classmethod
  def start(cls, seeds: int, patience: int) -> "Tracker":
    """The state before the first evaluation."""
    if patience < 1:
      raise InputError(f"patience = {patience}: give at least 1 evaluation")
    return cls(patience, [None] * seeds, [0] * seeds, [0] * seeds, [0] * seeds, [True] * seeds)

  def update(self, values: Sequence[float], step: int, epoch: int) -> list[bool]:
    """Records one evaluation; returns which active seeds improved (a tie is no improvement).

    Raises:
      InputError: the value of an active seed is not finite, so that it cannot be compared.

    """
    improved = []
    for i, value in enumerate(values):
      if self.active[i] and not math.isfinite(value):
        raise InputError(
          f"step {step}, epoch {epoch}: the metric that selects is {value} for seed "
          f"{i + 1} of {len(values)}, which can be compared with nothing: training "
          "has diverged; lower optimizer.rate"
        )
      best = self.best[i]
      better = self.active[i] and (best is None or value > best)
      improved.append(better)
      if better:
        self.best[i], self.best_step[i], self.best_epoch[i] = float(value), step, epoch
        self.waited[i] = 0
      elif self.active[i]:
        self.waited[i] += 1
        self.active[i] = self.waited[i] < self.patience
    return improved
