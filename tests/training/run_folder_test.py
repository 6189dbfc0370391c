"""The run's folder: config, log, lock."""

import json

import pytest
from ml_collections import ConfigDict

from as2jax.config.flat import differences, flatten
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.training.early_stopping import Tracker
from as2jax.training.run_folder import MetricsLog, claim, lock


def config(**changes):
  return ConfigDict(
    {"mode": "train", "seeds": (0, 1), "optimizer": {"rate": 1e-3}, "log": {"steps": 5}, **changes}
  )


def test_claim_writes_once_and_then_compares(tmp_path):
  claim(tmp_path, config(optimizer={"rate": 0.5}))  # nothing came of it: the folder is still new
  claim(tmp_path, config())
  (tmp_path / "checkpoints" / "latest" / "0").mkdir(parents=True)
  first = (tmp_path / "config.json").read_text()
  assert json.loads(first)["seeds"] == [0, 1]
  claim(tmp_path, config(mode="predict", log={"steps": 9}))  # these change no number
  assert (tmp_path / "config.json").read_text() == first
  with pytest.raises(InputError, match=r"optimizer.rate: 0.001 there, 0.1 now\n.*seeds: \[0, 1\]"):
    claim(tmp_path, config(optimizer={"rate": 0.1}, seeds=(0,)))
  (tmp_path / "config.json").write_text("{")
  with pytest.raises(InputError, match="is not JSON"):
    claim(tmp_path, config())


def test_differences_name_absent_keys():
  a, b = flatten({"x": {"y": 1}, "z": (1, 2)}), flatten({"x": {"w": 1}, "z": [1, 2]})
  assert differences(a, b) == ["  x.w: '(absent)' there, 1 now", "  x.y: 1 there, '(absent)' now"]


def test_the_log_rolls_back_by_seed(tmp_path):
  log = MetricsLog(tmp_path, tensorboard=True)
  log.roll_back((0, 1), 0)
  for step in (1, 2, 3):
    for seed in (0, 1):
      log.write(seed, step, {"loss": step + seed / 10})
  log.close()
  again = MetricsLog(tmp_path, tensorboard=True)
  again.roll_back((0,), 1)
  again.close()
  rows = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
  assert [(r["seed"], r["step"]) for r in rows] == [(0, 1), (1, 1), (1, 2), (1, 3)]
  assert list((tmp_path / "tensorboard/seed-0").iterdir())


def test_a_damaged_log_names_its_line(tmp_path):
  (tmp_path / "metrics.jsonl").write_text('{"seed": 0, "step": 1}\n{"seed"\n')
  with pytest.raises(InputError, match="metrics.jsonl:2: not JSON"):
    MetricsLog(tmp_path, tensorboard=False)


def test_write_whole_leaves_no_scratch(tmp_path):
  write_whole(tmp_path / "deep" / "x.txt", "one")
  write_whole(tmp_path / "deep" / "x.txt", "two")
  assert [p.name for p in (tmp_path / "deep").iterdir()] == ["x.txt"]
  assert (tmp_path / "deep" / "x.txt").read_text() == "two"


def test_a_folder_that_cannot_be_made(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(InputError, match="cannot be made"):
    with lock(tmp_path / "file" / "run"):
      pass


def test_tracker_stops_each_seed_by_its_own_patience():
  tracker = Tracker.start(2, patience=2)
  assert tracker.update([0.5, 0.5], 0, 0) == [True, True]
  assert tracker.update([0.6, 0.5], 10, 1) == [True, False]  # a tie is no gain
  assert tracker.update([0.5, 0.4], 20, 2) == [False, False]
  assert tracker.active == [True, False]
  assert tracker.update([0.7, 0.9], 30, 3) == [True, False]  # a stopped seed stays as it was
  assert tracker.best == [0.7, 0.5] and tracker.best_step == [30, 0]
  assert Tracker(**json.loads(json.dumps(vars(tracker)))) == tracker
  with pytest.raises(InputError, match="patience = 0"):
    Tracker.start(1, 0)
