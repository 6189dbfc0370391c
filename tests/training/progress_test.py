"""What a person sees of a run: phases, epochs, the time that is left."""

import functools
import importlib
import io
import re
import sys

import pytest
import rich.console

from as2jax.training import progress
from as2jax.training.progress import Progress

METRIC = "map[wikiqa-clean/dev]"
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
