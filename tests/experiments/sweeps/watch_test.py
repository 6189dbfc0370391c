"""A sweep watched from its folder alone, on disk and in a bucket: states, logs, cancel, collect."""

import io
import json
import os
import shutil
import sys
import time

import pytest
from etils import epath
from object_store_test import bucket as bucket  # noqa: PLC0414 (a fixture)
from rich.console import Console

from as2jax.commands import app
from as2jax.experiments.sweeps import local_executor, points, watch
from as2jax.experiments.sweeps.local_executor import execute
from as2jax.runtime import checksums
from as2jax.runtime.errors import InputError
from as2jax.training import status


def jobs_of(count):
  return [points.Job(f"id{i}", i, f"x={i}, seed 0", {"x": i}, 0, "{}") for i in range(count)]


def say(folder, *, age=0.0, **content):
  """A run's status of so many seconds ago."""
  folder.mkdir(parents=True, exist_ok=True)
  content = {"state": "training", "time": time.time() - age, **content}
  (folder / status.NAME).write_text(checksums.sealed(content))


def drawn(states, width=140):
  console = Console(file=io.StringIO(), width=width)
  console.print(watch.table(states))
  return console.file.getvalue()


def begun_sweep(place):
  """A sweep with a run in each state; returns its folder."""
  place = epath.Path(place)
  place.mkdir(parents=True, exist_ok=True)
  jobs = jobs_of(6)
  (place / "manifest.jsonl").write_text(
    "".join(
      json.dumps(
        {"id": j.id, "number": j.point, "title": j.title, "point": j.overrides, "seed": 0}
        | {"config": {}}
      )
      + "\n"
      for j in jobs
    )
  )
  say(place / "id0", step=30, steps=100, best=0.7125, seconds_left=7200, goodput=0.85)
  say(place / "id1", state="failed", error="step 3: the loss is nan. Lower optimizer.rate.")
  say(place / "id2", state="stopped", step=50, steps=100)
  say(place / "id4", age=3000, step=1, steps=9)
  (place / "id5" / "logs").mkdir(parents=True)
  (place / "id5" / "logs" / "host-0.txt").write_text("installing\nas2jax: no such file x.tsv\n")
  return str(place)


def test_states_in_a_bucket(bucket):
  actual = watch.states(begun_sweep(f"{bucket}/grid"))
  assert [one.state for one in actual] == [
    "running",
    "failed",
    "stopped",
    "waiting",
    "running",
    "running",
  ]
  assert "silent for 50 min" in actual[4].note and "no such file x.tsv" in actual[5].note
  text = drawn(actual)
  line = next(line for line in text.splitlines() if "id0" in line)
  for cell in ("30/100", "0.7125", "2.0 h", "85%"):
    assert cell in line
  assert "the loss is nan" in text and "1 failed, 3 running, 1 stopped, 1 waiting" in text
  assert text.index("id1") < text.index("id0") < text.index("id3")  # what wants a person is first


def test_runs_that_finished_here_and_those_of_a_cancelled_sweep_have_ended(tmp_path):
  """The script in which the others are emitted starts neither, so that nobody waits for them."""
  here, store = tmp_path / "out", tmp_path / "store"
  begun_sweep(store)
  points.write_manifest(here, jobs_of(6))
  (here / "store.json").write_text(json.dumps({"store": str(store)}))
  (here / "id3").mkdir()
  (here / "id3" / "results.json").write_text("{}")
  assert watch.states(str(here))[3].state == "finished"
  (here / "id3" / "results.json").unlink()
  assert watch.states(str(here))[3].state == "waiting"
  watch.cancel(str(here))
  state = watch.states(str(here))[3]
  assert (state.state, state.note) == ("stopped", "the sweep is cancelled")


def test_a_killed_run_on_this_disk_has_failed(tmp_path):
  place = begun_sweep(tmp_path)
  (tmp_path / "id4" / "log.txt").write_text("step 3\nKilled\n")
  (tmp_path / "id4" / ".lock").write_text(f"pid {2**22 + 1}")
  actual = {one.id: one for one in watch.states(place)}
  assert actual["id4"].state == "failed" and actual["id4"].note == "Killed"
  (tmp_path / "id4" / ".lock").write_text(f"pid {os.getpid()}")
  assert watch.states(place)[4].state == "running"


def test_the_commands(tmp_path, bucket, capsys):
  store = begun_sweep(f"{bucket}/grid")
  here = tmp_path / "out"
  here.mkdir()
  (here / "manifest.jsonl").write_text((epath.Path(store) / "manifest.jsonl").read_text())
  (here / "store.json").write_text(json.dumps({"store": store}))
  assert app.run(["lab", "sweep", "status", str(here), "--format=json"]) == 0
  shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert shown[0]["state"] == "running" and shown[0]["step"] == 30
  assert shown[1]["note"].startswith("step 3: the loss is nan")
  assert app.run(["lab", "sweep", "logs", str(here), "id5", "--lines=1"]) == 0
  assert capsys.readouterr().out.splitlines()[1:] == ["as2jax: no such file x.tsv"]
  assert app.run(["lab", "sweep", "logs", str(here), "zebra"]) == 2
  assert app.run(["lab", "sweep", "cancel", str(here)]) == 0
  assert (epath.Path(store) / "cancelled").exists()
  assert "save and end" in capsys.readouterr().out
  assert app.run(["lab", "sweep", "status", str(tmp_path)]) == 2
  assert "name the folder of a sweep" in capsys.readouterr().err


def test_a_cancelled_sweep_on_this_machine_ends_its_runs_and_goes_on_later(tmp_path):
  ready = tmp_path / "ready"
  code = (
    "import pathlib, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
    f"pathlib.Path({str(ready)!r}).touch()\ntime.sleep(60)"
  )
  command = lambda folder: [sys.executable, "-c", code]
  (tmp_path / "cancelled").touch()  # of an earlier start: it ends nothing

  def cancel():
    if ready.exists():
      watch.cancel(str(tmp_path))

  points.write_manifest(tmp_path, jobs_of(1))
  with pytest.raises(KeyboardInterrupt, match="cancelled"):
    execute(
      jobs_of(1), tmp_path, parallel=1, say=lambda line: None, watch=cancel, make_command=command
    )
  done = "import pathlib; pathlib.Path(FOLDER, 'results.json').write_text('{}')"
  failed = execute(
    jobs_of(1),
    tmp_path,
    parallel=1,
    say=lambda line: None,
    make_command=lambda folder: [sys.executable, "-c", done.replace("FOLDER", repr(str(folder)))],
  )
  assert not failed and local_executor.finished(tmp_path / "id0")


def test_finished_runs_are_brought_here_and_make_the_table(
  tmp_path, bucket, finished_run, monkeypatch, capsys
):
  """All but checkpoints; a run that is under way stays where it is."""
  here, store = tmp_path / "out", epath.Path(f"{bucket}/grid")
  jobs = []
  for number, name in enumerate(("bm25", "word_overlap")):
    run = finished_run(name)
    text = (run / "config.json").read_text()
    point = {} if number == 0 else {"model.name": name}
    title = ("base" if number == 0 else f"model.name={name}") + ", seed 0"
    jobs.append(points.Job(f"id{number}", number, title, point, 0, text))
    shutil.copytree(run, tmp_path / f"id{number}")
    for path in run.rglob("*"):
      if path.is_file():
        target = store / f"id{number}" / path.relative_to(run)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    (store / f"id{number}" / "checkpoints" / "latest").write_text("large")
  points.write_manifest(here, jobs)
  (here / "store.json").write_text(json.dumps({"store": str(store)}))
  assert app.run(["lab", "sweep", "collect", str(here)]) == 0
  printed = capsys.readouterr().out
  assert "result: " in printed and "chosen by MAP on dev" in printed
  assert (here / "table.csv").exists() and not (here / "id0" / "checkpoints").exists()
  again = (here / "id0" / "eval" / "test" / "run.trec").read_bytes()
  assert again == (finished_run("bm25") / "eval" / "test" / "run.trec").read_bytes()
  actual = watch.states(str(here))
  assert [one.state for one in actual] == ["finished", "finished"]
  assert actual[0].content["best"] == pytest.approx(
    json.loads((finished_run("bm25") / "results.json").read_text())["metrics"][
      actual[0].content["metric"]
    ]["mean"]
  )


def test_a_run_whose_copy_was_broken_off_is_copied_anew(tmp_path):
  here, store = tmp_path / "out", tmp_path / "store"
  points.write_manifest(here, jobs_of(1))
  (here / "store.json").write_text(json.dumps({"store": str(store)}))
  for root, ranking in ((here, "q1 Q0 a 1"), (store, "q1 Q0 a 1\nq1 Q0 b 2\n")):
    (root / "id0" / "eval").mkdir(parents=True)
    (root / "id0" / "eval" / "run.trec").write_text(ranking)
  (store / "id0" / "results.json").write_text("{}")
  copied = here / "id0" / "eval" / "run.trec"
  watch.bring(str(here))
  assert copied.read_text() == ranking and (here / "id0" / "results.json").read_text() == "{}"
  before = copied.stat().st_mtime_ns
  watch.bring(str(here))
  assert copied.stat().st_mtime_ns == before  # a whole copy is not made again


def test_a_damaged_manifest_is_named(tmp_path):
  (tmp_path / "manifest.jsonl").write_text('{"id": 1}\n')
  with pytest.raises(InputError, match="manifest.jsonl: no manifest of a sweep"):
    watch.states(str(tmp_path))


def test_as_json_follow_prints_how_the_runs_ended(tmp_path, monkeypatch, capsys):
  folder, looks = begun_sweep(tmp_path / "grid"), []
  running, ended = watch.states(folder), [s for s in watch.states(folder) if s.state == "failed"]
  monkeypatch.setattr(
    watch, "states", lambda place: looks.append(place) or (running if len(looks) < 3 else ended)
  )
  monkeypatch.setattr(time, "sleep", lambda seconds: None)
  assert app.run(["lab", "sweep", "status", folder, "--follow", "--format=json"]) == 0
  rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert {row["state"] for row in rows} == {"failed"} and len(looks) == 3
