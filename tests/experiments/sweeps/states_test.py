"""`as2jax lab sweep status`: where each run is, from its folder alone."""

import json
import os
import pathlib
import time

import pytest

from as2jax.commands import app
from as2jax.evaluation import results
from as2jax.experiments.sweeps import points, states
from as2jax.runtime.files import seal
from as2jax.training import progress


def begin(folder, *, age=0.0, **content):
  """A run whose status was written so many seconds ago."""
  folder.mkdir(parents=True)
  content = {"state": progress.TRAINING, "time": time.time() - age, **content}
  (folder / progress.NAME).write_text(seal(content))


@pytest.fixture
def place(tmp_path, finished_run):
  """A sweep with a run in each state."""
  jobs = [points.Job(f"id{i}", i, f"x={i}, seed 0", {"x": i}, 0, "{}") for i in range(7)]
  points.write_manifest(tmp_path, jobs)
  begin(tmp_path / "id0", step=30, steps=100, best=0.7125, seconds_left=7200, goodput=0.85)
  begin(tmp_path / "id1", state=progress.FAILED, error="step 3: the loss is nan.")
  begin(tmp_path / "id2", state=progress.STOPPED, step=50, steps=100)
  begin(tmp_path / "id4", age=3000, step=1, steps=9)
  (tmp_path / "id4" / "log.txt").write_text("step 3\nKilled\n")
  (tmp_path / "id5").mkdir()
  (tmp_path / "id5" / "log.txt").write_text("as2jax: no such file x.tsv\n")
  (tmp_path / "id6").symlink_to(finished_run("bm25"))
  return tmp_path


def test_states(place, capsys):
  assert app.run(["lab", "sweep", "status", str(place), "--format=json"]) == 0
  rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  names = ["running", "failed", "stopped", "waiting", "silent", "running", "finished"]
  assert [row["state"] for row in rows] == names
  assert [rows[i]["note"] for i in (1, 4, 5)] == [
    "step 3: the loss is nan.",
    "for 50 min; Killed",
    "as2jax: no such file x.tsv",
  ]
  figures = results.read(pathlib.Path(place / "id6"))["metrics"]
  assert rows[6]["best"] == figures[rows[6]["metric"]]["mean"]
  assert app.run(["lab", "sweep", "status", str(place), "--format=text"]) == 0
  line = next(line for line in capsys.readouterr().out.splitlines() if "id0" in line)
  assert line.split() == "id0 x=0, seed 0 running 30/100 0.7125 2.0 h 85%".split()


def test_a_run_that_says_nothing_after_its_start_is_silent(place):
  before = time.time() - 1000
  os.utime(place / "id5" / "log.txt", (before, before))
  assert states.rows(place)[5]["state"] == states.SILENT


@pytest.mark.parametrize(
  "text, message", [(None, "name the folder of a sweep"), ('{"id": 1}\n', "no manifest of a sweep")]
)
def test_what_is_no_sweep_is_refused(tmp_path, text, message, capsys):
  if text:
    (tmp_path / "manifest.jsonl").write_text(text)
  for verb in ("status", "collect"):
    assert app.run(["lab", "sweep", verb, str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
