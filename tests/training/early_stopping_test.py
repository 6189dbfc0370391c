"""Early stopping: what is best, and what cannot be."""

import math

import pytest

from as2jax.runtime.errors import InputError
from as2jax.training.early_stopping import Tracker


def test_only_a_finite_value_is_best():
  for value in (math.nan, math.inf, -math.inf):
    tracker = Tracker.start(2, patience=1)
    with pytest.raises(InputError, match=f"step 3, epoch 1: .* is {value} for seed 2 of 2"):
      tracker.update([0.5, value], 3, 1)
    tracker = Tracker.start(2, patience=1)
    tracker.update([0.5, 0.5], 0, 0)
    with pytest.raises(InputError, match="step 3"):
      tracker.update([0.6, value], 3, 1)
    assert tracker.best[1] == 0.5


def test_a_seed_that_has_stopped_is_not_asked():
  tracker = Tracker.start(2, patience=1)
  tracker.update([0.5, 0.5], 0, 0)
  assert tracker.update([0.6, 0.4], 1, 1) == [True, False] and tracker.active == [True, False]
  assert tracker.update([0.7, math.nan], 2, 2) == [True, False]
  assert tracker.best == [0.7, 0.5]
