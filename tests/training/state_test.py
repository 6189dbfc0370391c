"""Early stopping: what is best, and what cannot be."""

import json
import math

import pytest
import tiny

from as2jax.runtime.errors import InputError
from as2jax.training.loop import train_and_evaluate
from as2jax.training.state import Tracker


def test_a_split_without_an_answer_selects_nothing(tmp_path):
  files = {}
  for split, right in (("train", 1), ("dev", 0)):
    rows = [f"{split} {i}\tanswer {j}\t{right * j}" for i in range(4) for j in (0, 1)]
    path = tmp_path / f"{split}.tsv"
    path.write_text("\n".join(["question\tcandidate\tlabel", *rows]) + "\n")
    files[f"data__{split}"] = str(path)
  config = tiny.config("triplet", data__name="files", data__train_fraction=1.0, **files)
  with pytest.raises(InputError, match="no question of the split dev counts .*data.holdout"):
    train_and_evaluate(config, tmp_path / "run")


def test_tracker_stops_each_seed_by_its_own_patience():
  tracker = Tracker.start(2, patience=2)
  assert tracker.update([0.5, 0.5], 0, 0) == [True, True]
  assert tracker.update([0.6, 0.5], 10, 1) == [True, False]  # a tie is no gain
  assert tracker.update([0.5, 0.4], 20, 2) == [False, False]
  assert tracker.active == [True, False]
  assert tracker.update([0.7, math.nan], 30, 3) == [True, False]  # a stopped seed stays as it was
  assert tracker.best == [0.7, 0.5] and tracker.best_step == [30, 0]
  assert Tracker(**json.loads(json.dumps(vars(tracker)))) == tracker
