"""What a person or a sweep sees of a run: phases, epochs, the time that is left, `status.json`."""

import io
import re
import sys
import time

import pytest
import rich.console
from ml_collections import ConfigDict

from as2jax.evaluation import results
from as2jax.runtime import preemption
from as2jax.training import metrics_log, progress
from as2jax.training.progress import Progress, read_status

CONFIG = ConfigDict({"seconds": 0.0})
METRIC = "map[wikiqa-clean/dev]"
CONSOLE = rich.console.Console


class Terminal(io.StringIO):
  def isatty(self):
    return True


def take_steps(display, first, last):
  for step in range(first, last + 1):
    display.step(step, {"loss": 0.5, "seconds_per_step": 1.0})


def play(now, workdir):
  """A run of two epochs of three steps, of which each takes a second but the first, which compiles."""
  with Progress(CONFIG, workdir) as display:
    display.phase("reading")
    display.phase("tokenising")
    display.begin_group((0,), 0, 1, 2)
    for epoch in range(2):
      display.begin_epoch(epoch, 0, 3)
      for step in range(1, 4):
        now[0] += 60.0 if epoch == 0 and step == 1 else 1.0
        take_steps(display, step, step)
      display.phase("evaluating")
      display.evaluated(epoch + 1, METRIC, [0.5], [True])


@pytest.fixture
def now(monkeypatch):
  """The time, in a list."""
  at = [0.0]
  monkeypatch.setattr(progress.time, "monotonic", lambda: at[0])
  return at


def test_a_log_names_phases_epochs_and_the_time_left(now, capsys, tmp_path):
  play(now, tmp_path)
  lines = capsys.readouterr().err.splitlines()
  assert lines[:3] == ["reading", "tokenising", f"{tmp_path}: seeds 0"]
  told = [line for line in lines if line.startswith("training")]
  assert told[0] == "training  epoch 1 of 2  1/3  loss 0.5  1.00 s/step"
  # A second a step from the second on: the minute of compilation counts in no rate.
  assert told[1] == "training  epoch 1 of 2  2/3  loss 0.5  1.00 s/step  4 s left"
  assert told[-1].startswith("training  epoch 2 of 2  3/3")
  assert f"after 2 epochs  {METRIC} 0.5000 (best)" in lines
  assert lines.count("compiling") == 1


def test_a_terminal_draws_every_phase_and_no_markup(now, monkeypatch, tmp_path):
  """Also where the thread that draws ten times a second stands still, on a busy machine."""
  stream = Terminal()
  monkeypatch.setattr(sys, "stderr", stream)
  monkeypatch.setattr("rich.live._RefreshThread.run", lambda self: None)
  monkeypatch.setattr(
    rich.console, "Console", lambda **k: CONSOLE(file=stream, force_terminal=True, width=150, **k)
  )
  play(now, tmp_path / "[b]:smile:")
  shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
  drawn = [re.sub(r"\W*━.*", "", line) for line in re.split(r"[\r\n]+", shown) if "━" in line]
  assert list(dict.fromkeys(drawn)) == [
    "",
    "reading",
    "tokenising",
    "compiling  epoch 1 of 2",
    "training  epoch 1 of 2",
    "evaluating  epoch 1 of 2",
    "training  epoch 2 of 2",
    "evaluating  epoch 2 of 2",
  ]
  assert " 50 %" in shown and "after 1 epoch" in shown and "[b]:smile:: seeds 0" in shown


def test_durations():
  assert [progress.duration(s) for s in (40, 720, 12600)] == ["40 s", "12 min", "3.5 h"]


def test_the_status_says_how_far_a_run_is(tmp_path):
  with Progress(CONFIG, tmp_path) as display:
    display.phase("reading")
    assert read_status(tmp_path)["phase"] == "reading"
    display.begin_group((0,), 0, 2, 3)  # the first of two runs of three epochs
    display.begin_epoch(1, 0, 10)  # the second epoch
    take_steps(display, 1, 4)
    actual = read_status(tmp_path)
    assert (actual["step"], actual["steps"], actual["epoch"]) == (14, 60, 2)
    display.evaluated(2, "map[x/dev]", [0.5, 0.7], [True, True])
    display.evaluated(3, "map[x/dev]", [0.2, 0.4], [False, False])
    actual = read_status(tmp_path)
    assert actual["value"] == pytest.approx(0.3) and actual["best"] == pytest.approx(0.6)
    assert abs(actual["time"] - time.time()) < 60 and actual["state"] == "training"
  actual = read_status(tmp_path)
  assert (actual["state"], actual["phase"], actual["seconds_left"]) == ("finished", None, None)
  with pytest.raises(preemption.Preempted), Progress(CONFIG, tmp_path) as display:
    display.begin_group((0,), 0, 1, 2)
    display.begin_epoch(1, 0, 10)
    display.stop(3)  # with steps of which the log has no row yet
    raise preemption.Preempted
  actual = read_status(tmp_path)
  assert (actual["state"], actual["step"], actual["steps"]) == ("stopped", 13, 20)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
  "error, state, text",
  [
    (ValueError("no\nroom"), "failed", "no room"),
    (ZeroDivisionError(), "failed", "ZeroDivisionError"),
    (preemption.Preempted("saved"), "stopped", None),
    (KeyboardInterrupt(), "stopped", None),
  ],
)
def test_the_status_says_how_a_run_ended(tmp_path, monkeypatch, error, state, text, full):
  def fail(*_):
    raise OSError(28, "No space left on device")

  with pytest.raises(type(error)), Progress(CONFIG, tmp_path):
    if full:  # which does not hide the error
      monkeypatch.setattr(progress, "write_whole", fail)
    raise error
  if not full:
    actual = read_status(tmp_path)
    assert actual["state"] == state and actual.get("error") == text


def test_goodput_counts_steps_that_stay_over_restarts(tmp_path, monkeypatch):
  """By hand: 8 s of steps, then 100 s pass, 5 s of steps again, of which a restart keeps 4 + 5."""
  now = [1000.0]
  monkeypatch.setattr(progress.time, "time", lambda: now[0])
  log = metrics_log.MetricsLog(tmp_path, tensorboard=False)
  with Progress(CONFIG, tmp_path) as display:
    display.begin_group((0,), 0, 1, 1)
    display.begin_epoch(0, 0, 20)
    for step in (4, 8):
      log.write(0, step, {"loss": 1.0, "seconds_per_step": 1.0})
    log.flush()
    take_steps(display, 1, 8)
    now[0] += 10.0
    assert display.goodput() == 0.8
  now[0] += 100.0
  log.roll_back((0,), 4)
  with Progress(CONFIG, tmp_path) as display:
    display.begin_group((0,), 0, 1, 1)
    display.begin_epoch(0, 4, 20)
    take_steps(display, 5, 9)
    assert display.goodput() == round(9.0 / 110.0, 4)


def test_a_run_has_a_goodput_and_a_damaged_status_is_none(finished_run, tmp_path):
  run = finished_run("crossencoder")
  content = results.read(run)["execution"]
  # Of the whole run's time, which the results have been told a moment before the end.
  share = metrics_log.step_seconds(run) / content["seconds"]
  assert 0 < content["goodput"] < 1 and content["goodput"] == pytest.approx(share, rel=0.2)
  status = (run / progress.NAME).read_text()
  (tmp_path / progress.NAME).write_text(status)
  assert read_status(tmp_path)["state"] == "finished" and read_status(tmp_path)["best"] is not None
  (tmp_path / progress.NAME).write_text(status.replace("finished", "training"))
  assert read_status(tmp_path) == {} == read_status(tmp_path / "absent")
