"""`status.json`: what a run says of itself while it is under way, and the share of time in steps."""

import json
import time

import pytest
from ml_collections import ConfigDict

from as2jax.evaluation import results
from as2jax.runtime import preemption
from as2jax.training import run_folder, status
from as2jax.training.progress_bar import Display

CONFIG = ConfigDict({"seconds": 0.0})


def shown(folder):
  return json.loads((folder / status.NAME).read_text())


def steps(display, first, last, seconds):
  for step in range(first, last + 1):
    display.step(step, {"loss": 0.5, "seconds_per_step": seconds}, 8 * step)


def test_it_says_how_far_a_run_is(tmp_path):
  with Display(CONFIG, tmp_path) as display:
    display.phase("reading")
    assert shown(tmp_path)["phase"] == "reading"
    display.seeds((0,), 0, 2, 3)  # the first of two runs of three epochs
    display.epoch(1, 0, 10, 0)  # the second epoch
    steps(display, 1, 4, 1.0)
    actual = shown(tmp_path)
    assert (actual["step"], actual["steps"], actual["epoch"]) == (14, 60, 2)
    display.evaluated(2, "map[x/dev]", [0.5, 0.7], [True, True])
    display.evaluated(3, "map[x/dev]", [0.2, 0.4], [False, False])
    actual = shown(tmp_path)
    assert actual["value"] == pytest.approx(0.3) and actual["best"] == pytest.approx(0.6)
    assert abs(actual["time"] - time.time()) < 60 and actual["state"] == "training"
  actual = shown(tmp_path)
  assert (actual["state"], actual["phase"], actual["seconds_left"]) == ("finished", None, None)
  with Display(CONFIG, tmp_path) as display:
    display.phase("reading")
    assert shown(tmp_path)["state"] == "training"


def test_a_run_that_stops_says_after_which_step(tmp_path):
  """With steps of which the log has no row yet."""
  with pytest.raises(preemption.Preempted), Display(CONFIG, tmp_path) as display:
    display.seeds((0,), 0, 1, 2)
    display.epoch(1, 0, 10, 0)
    display.stops(3)
    raise preemption.Preempted
  actual = shown(tmp_path)
  assert (actual["state"], actual["step"], actual["steps"]) == ("stopped", 13, 20)


@pytest.mark.parametrize(
  "error, state, text",
  [
    (ValueError("no\nroom"), "failed", "no room"),
    (ZeroDivisionError(), "failed", "ZeroDivisionError"),
    (preemption.Preempted("saved"), "stopped", None),
    (KeyboardInterrupt(), "stopped", None),
  ],
)
def test_it_says_how_a_run_ended(tmp_path, error, state, text):
  with pytest.raises(type(error)), Display(CONFIG, tmp_path):
    raise error
  actual = shown(tmp_path)
  assert actual["state"] == state and actual.get("error") == text


@pytest.mark.parametrize(
  "error", [ValueError("no room"), preemption.Preempted("saved"), KeyboardInterrupt()]
)
def test_a_disk_that_is_full_does_not_hide_how_a_run_ended(tmp_path, monkeypatch, error):
  def fail(*_):
    raise OSError(28, "No space left on device")

  with pytest.raises(type(error)), Display(CONFIG, tmp_path):
    monkeypatch.setattr(status, "write_whole", fail)
    raise error


def test_goodput_counts_steps_that_stay_over_restarts(tmp_path, monkeypatch):
  """By hand: 8 s of steps, then 100 s pass, 5 s of steps again, of which a restart keeps 4 + 5."""
  now = [1000.0]
  monkeypatch.setattr(status.time, "time", lambda: now[0])
  log = run_folder.MetricsLog(tmp_path, tensorboard=False)
  with Display(CONFIG, tmp_path) as display:
    display.seeds((0,), 0, 1, 1)
    display.epoch(0, 0, 20, 0)
    for step in (4, 8):
      log.write(0, step, {"loss": 1.0, "seconds_per_step": 1.0})
    log.flush()
    steps(display, 1, 8, 1.0)
    now[0] += 10.0
    assert display.status.goodput() == 0.8
  now[0] += 100.0
  log.roll_back((0,), 4)
  with Display(CONFIG, tmp_path) as display:
    display.seeds((0,), 0, 1, 1)
    display.epoch(0, 4, 20, 0)
    steps(display, 5, 9, 1.0)
    assert display.status.goodput() == round(9.0 / 110.0, 4)


def test_steps_of_seeds_that_train_together_count_once(tmp_path):
  log = run_folder.MetricsLog(tmp_path, tensorboard=False)
  for seed in (0, 1):
    log.write(seed, 10, {"seconds_per_step": 0.5})
  log.write(2, 10, {"seconds_per_step": 0.25})  # another seed, in its own turn
  log.write(2, 10, {"epoch": 1, "map": 0.5})
  log.flush()
  assert run_folder.step_seconds(tmp_path) == pytest.approx(7.5)
  assert run_folder.step_seconds(tmp_path / "none") == 0.0


def test_a_run_has_a_goodput(finished_run):
  run = finished_run("crossencoder")
  content = results.read(run)["execution"]
  assert 0 < content["goodput"] < 1
  # Of the whole run's time, which the results have been told a moment before the end.
  assert content["goodput"] == pytest.approx(
    run_folder.step_seconds(run) / content["seconds"], rel=0.2
  )
  assert shown(run)["best"] is not None and shown(run)["state"] == "finished"


def test_a_damaged_status_is_none(tmp_path, caplog):
  with Display(CONFIG, tmp_path) as display:
    display.phase("reading")
  path = tmp_path / status.NAME
  assert status.read(tmp_path)["state"] == "finished"
  path.write_text(path.read_text().replace("finished", "training"))
  assert status.read(tmp_path) == {} == status.read(tmp_path / "absent")
  (said,) = caplog.messages
  assert str(path) in said and "not what was written" in said
  # A run that goes on writes a whole one again, and counts its time from now.
  with Display(CONFIG, tmp_path) as display:
    display.phase("reading")
  assert abs(status.read(tmp_path)["began"] - time.time()) < 60
