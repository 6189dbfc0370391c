"""The rows of a run's log, how far the host runs ahead of the devices, what a person sees of a run."""

import functools
import importlib
import io
import json
import re
import signal
import sys

import numpy as np
import pytest
import rich.console

from as2jax.runtime.errors import InputError
from as2jax.training import metrics_log, progress
from as2jax.training.metrics_log import MetricsLog, StepLog
from as2jax.training.progress import Progress

METRIC = "map[wikiqa-clean/dev]"


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
  again.write(1, 3, {"epoch": 1})
  again.flush()
  again.roll_back((1,), 3, evaluated=True)
  assert '"epoch"' in again.path.read_text()
  again.roll_back((1,), 3, evaluated=False)  # it will be made, and written, again
  assert '"epoch"' not in again.path.read_text() and '"step": 3' in again.path.read_text()
  assert list((tmp_path / "tensorboard/seed-0").iterdir())


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_row_that_a_kill_left_incomplete_is_dropped(tmp_path, cut):
  path, log = tmp_path / "metrics.jsonl", MetricsLog(tmp_path, tensorboard=False)
  for step in (1, 2):
    log.write(0, step, {"loss": 0.5})
    log.flush()
  whole = path.read_bytes()
  path.write_bytes(whole[:-cut])
  again = MetricsLog(tmp_path, tensorboard=False)
  again.roll_back((0,), 2)
  assert [json.loads(x)["step"] for x in path.read_text().splitlines()] == [1]
  again.write(0, 2, {"loss": 0.5})
  again.close()
  assert path.read_bytes() == whole


def test_a_full_disk_leaves_no_part_of_a_row(tmp_path):
  resource = pytest.importorskip("resource")
  path, log = tmp_path / "metrics.jsonl", MetricsLog(tmp_path, tensorboard=False)
  log.write(0, 1, {"loss": 0.5})
  log.flush()
  whole, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
  before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  log.write(0, 2, {"loss": 0.5})
  try:
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, limits[1]))
    with pytest.raises(OSError):
      log.flush()
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)
  assert path.read_bytes() == whole
  log.close()  # there is room again
  assert [json.loads(x)["step"] for x in path.read_text().splitlines()] == [1, 2]


@pytest.mark.parametrize(
  "line", [b'{"seed"', b"\xff", b"[" * 100_000, b"3", b'{"seed": 0}', b'{"seed": 0, "step": "2"}']
)
def test_a_line_of_the_log_that_is_no_row_is_named(tmp_path, line):
  (tmp_path / "metrics.jsonl").write_bytes(b'{"seed": 0, "step": 1}\n' + line + b"\n")
  with pytest.raises(InputError, match="metrics.jsonl:2: no row.*Delete the line"):
    MetricsLog(tmp_path, tensorboard=False).roll_back((0,), 1)


def test_tags_group_by_split():
  assert metrics_log.tag(METRIC) == "dev/map_wikiqa-clean"
  assert metrics_log.tag("map[wikiqa-clean/dev+test]") == "dev+test/map_wikiqa-clean"
  assert metrics_log.tag("loss") == "train/loss"


def test_steps_of_seeds_that_train_together_count_once(tmp_path):
  log = MetricsLog(tmp_path, tensorboard=False)
  for seed in (0, 1):
    log.write(seed, 10, {"seconds_per_step": 0.5})
  log.write(2, 10, {"seconds_per_step": 0.25})  # another seed, in its own turn
  log.write(2, 10, {"epoch": 1, "map": 0.5})
  log.flush()
  assert metrics_log.step_seconds(tmp_path) == pytest.approx(7.5)
  assert metrics_log.step_seconds(tmp_path / "none") == 0.0


class Scalar:
  """A value that a device is still computing; says when the host waits for it."""

  def __init__(self, step, read):
    self.step, self.read = step, read

  def __array__(self, dtype=None, copy=None):
    self.read.append(self.step)
    return np.asarray([float(self.step)], dtype)


class Log:
  def __init__(self):
    self.rows = []

  def write(self, seed, step, row):
    self.rows.append((seed, step, row.get("loss")))

  def flush(self):
    pass


def test_step_i_is_dispatched_when_step_i_minus_2_has_ended():
  read, log = [], Log()
  window = StepLog([0], log)
  for step in range(1, 8):
    # Here `step` is dispatched.
    assert sorted(set(read)) == list(range(1, step - 1))
    scalars = {"loss": Scalar(step, read), "gradient_norm": Scalar(step, read)}
    window.add(step, scalars, [True], [step / 8])
  row = window.write(7)
  assert row["loss"] == 4.0 and max(read) == 7  # of the steps 1 to 7
  assert row["padding"] == 0.5  # likewise
  assert log.rows == [(0, 7, 4.0)]


def test_a_step_counts_for_the_seeds_that_take_it(now):
  """Seed 1 has an epoch of one step less, and seed 2 has stopped; the run is resumed in between."""
  losses = lambda *values: {"loss": np.asarray(values), "gradient_norm": np.ones(3)}
  first, log = StepLog([0, 1, 2], Log()), Log()
  first.add(1, losses(1.0, 5.0, np.nan), [True, True, False], [0.0] * 3)
  now[0] += 3.0  # the time that a step takes counts before the stop, too
  left = first.unwritten()
  now[0] += 1000.0
  second = StepLog([0, 1, 2], log, left)
  second.add(2, losses(3.0, 0.0, 9.0), [True, False, False], [0.0] * 3)
  now[0] += 1.0
  row = second.write(2)
  assert row["loss"] == 2.0 and row["seconds_per_step"] == 2.0
  assert log.rows == [(0, 2, 2.0), (1, 2, 5.0), (2, 2, None)]
  second.add(3, losses(1.0, np.inf, 0.0), [True, True, False], [0.0] * 3)
  with pytest.raises(InputError, match="step 3, seed 1: the loss is inf.* Lower optimizer.rate"):
    second.write(3)


CONSOLE = rich.console.Console


class Terminal(io.StringIO):
  def isatty(self):
    return True


def play(now, name):
  """A run of two epochs of three steps, of which each takes a second but the first, which compiles."""
  with Progress(0.0) as display:
    display.phase("reading")
    display.phase("tokenising")
    display.say(name)
    for epoch in range(2):
      display.begin_epoch(epoch, 2, 0, 3)
      for step in range(1, 4):
        now[0] += 60.0 if epoch == 0 and step == 1 else 1.0
        display.step(step, {"loss": 0.5, "seconds_per_step": 1.0})
      display.phase("evaluating")
      display.evaluated(epoch + 1, METRIC, [0.5], [True])
    for done in (0, 4, 9):
      display.count("encoded", done, 9)


@pytest.fixture
def now(monkeypatch):
  """The time, in a list."""
  at = [0.0]
  monkeypatch.setattr(progress.time, "monotonic", lambda: at[0])
  return at


def test_a_log_names_phases_epochs_and_the_time_left(now, capsys):
  play(now, "seeds 0")
  lines = capsys.readouterr().err.splitlines()
  assert lines[:3] == ["reading", "tokenising", "seeds 0"]
  told = [line for line in lines if line.startswith("training")]
  assert told[0] == "training  epoch 1 of 2  1/3  loss 0.5  1.00 s/step"
  # A second a step from the second on: the minute of compilation counts in no rate.
  assert told[1] == "training  epoch 1 of 2  2/3  loss 0.5  1.00 s/step  4 s left"
  assert told[-1].startswith("training  epoch 2 of 2  3/3")
  assert f"after 2 epochs  {METRIC} 0.5000 (best)" in lines
  assert lines.count("compiling") == 1
  assert lines[-2:] == [f"after 2 epochs  {METRIC} 0.5000 (best)", "encoded 4 of 9"]


def test_a_notebook_with_widgets_draws_the_bar(now, monkeypatch, tmp_path, capsys):
  (tmp_path / "IPython").mkdir()
  for name, text in {
    "IPython/__init__.py": "",
    "IPython/display.py": "shown = []\ndef display(one): shown.append(one)",
    "ipywidgets.py": "class Output:\n  clear_output = __exit__ = lambda *_, **__: None\n  __enter__ = lambda self: self",
  }.items():
    (tmp_path / name).write_text(text)
  monkeypatch.setattr(rich.console, "Console", functools.partial(CONSOLE, force_jupyter=True))
  play(now, "seeds 0")
  assert "training  epoch 1 of 2" in capsys.readouterr().err  # lines, where there are no widgets
  monkeypatch.syspath_prepend(tmp_path)
  play(now, "seeds 0")
  drawn = "".join(
    getattr(one, "text", "") for one in importlib.import_module("IPython.display").shown
  )
  assert "training  epoch 2 of 2" in drawn and "left" in drawn and "encoded 4 of 9" in drawn
  assert not capsys.readouterr().err


def test_a_terminal_draws_every_phase_and_no_markup(now, monkeypatch):
  """Also where the thread that draws ten times a second stands still, on a busy machine."""
  stream = Terminal()
  monkeypatch.setattr(sys, "stderr", stream)
  monkeypatch.setattr("rich.live._RefreshThread.run", lambda self: None)
  monkeypatch.setattr(
    rich.console, "Console", lambda **k: CONSOLE(file=stream, force_terminal=True, width=150, **k)
  )
  play(now, "[b]:smile:")
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
    *(f"encoded {done} of 9" for done in (0, 4, 9)),
  ]
  assert " 50 %" in shown and "after 1 epoch" in shown and "[b]:smile:" in shown
