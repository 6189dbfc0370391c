"""Sweeps: the plan, whole sweeps on the sample, and the local executor with processes of our own."""

import ast
import csv
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
import tiny

from as2jax.commands import app
from as2jax.config import jobs as job_files
from as2jax.evaluation import run_scores, significance
from as2jax.experiments import sweep
from as2jax.experiments.figures import one_system
from as2jax.runtime.preemption import Preempted
from as2jax.training import loop

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("in_the_repository")
LEXICAL = "configs/wikiqa_baseline.py:bm25,sample"
RANKERS = ("word_overlap", "idf_overlap")


def sweep_file(folder, base, points):
  path = folder / "points.py"
  path.write_text(f"BASE = {base!r}\n\ndef points():\n  yield from {points!r}\n")
  return str(path)


def test_every_point_of_every_sweep_resolves():
  for path in (ROOT / "configs" / "ablations").glob("*.py"):
    base, grid = sweep.load(str(path))
    jobs = sweep.plan(base, grid)  # which checks each config
    assert len({job.id for job in jobs}) == len(jobs) >= len(grid)


def test_the_id_is_that_of_the_resolved_config():
  grid = [{"optimizer.rate": 1e-3}]
  base = "configs/wikiqa_triplet.py:sample"
  first, second = sweep.plan(base, grid)
  assert first.name == "base, seed 0"
  assert sweep.plan(base, grid)[1].id == second.id != first.id
  # The same config by another way is the same run.
  assert sweep.plan(base, grid, settings={"optimizer.rate": 1e-3})[0].id == second.id
  assert sweep.plan(base, grid, seeds=(1,))[1].id != second.id


POINT = [{"model.name": "word_overlap"}]
TRIPLET = "configs/wikiqa_triplet.py:sample"


@pytest.mark.parametrize(
  "base, rows, options, message",
  [
    (TRIPLET, [{"optimizer.rat": 1.0}], [], "the point optimizer.rat=1.0: optimizer.rat: "),
    (TRIPLET, [{"epochs": -1}], [], "epochs = -1: give 0 or more"),
    (TRIPLET, [{"epochs": 1}, {"epochs": 1}], [], "the points epochs=1 and epochs=1 are the same"),
    (TRIPLET, [{"seeds": (1,)}], [], "seeds must be the same"),
    (TRIPLET, [{"data.name": "x"}], [], "data.name must be the"),
    (TRIPLET, [], [], "points() must yield dicts"),
    (TRIPLET, [1], [], "points() must yield dicts"),
    (1, POINT, [], "sweep file"),
    (LEXICAL, POINT, ["--set=epochs"], "--set epochs: give KEY=VALUE"),
    (LEXICAL, POINT, ["--set=evaluation.splits=('test',)"], "evaluation.splits lacks dev"),
    (LEXICAL, POINT, ["--set=data.holdout=0.2"], "evaluation.splits lacks heldout"),
    (LEXICAL, POINT, ["--output=gs://x/y"], "local folder"),
  ],
)
def test_a_wrong_sweep_is_refused(tmp_path, base, rows, options, message, capsys):
  path = sweep_file(tmp_path, base, rows)
  if base == 1:
    pathlib.Path(path).write_text("BASE = 1 / 0\n")
  assert app.run(["lab", "sweep", path, f"--output={tmp_path / 'x'}", *options]) == 2
  said = capsys.readouterr().err
  assert message in said and said.startswith("as2jax: ") and not (tmp_path / "x").exists()


@pytest.fixture(scope="module")
def lexical(tmp_path_factory):
  """A sweep over rankers without parameters, as the command runs it, two at a time."""
  folder = tmp_path_factory.mktemp("sweep")
  path = sweep_file(folder, LEXICAL, [{"model.name": name} for name in RANKERS])
  command = ["lab", "sweep", path, f"--output={folder / 'out'}", "--parallel=2"]
  process = subprocess.run(
    [sys.executable, "-m", "as2jax", *command],
    cwd=ROOT,
    env={**os.environ, "JAX_PLATFORMS": "cpu"},
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert process.returncode == 0, process.stderr + process.stdout
  return path, folder / "out", process.stdout


def test_the_table_of_a_sweep(lexical):
  path, output, printed = lexical
  manifest = [json.loads(line) for line in (output / "manifest.jsonl").read_text().splitlines()]
  titles = ["base", "model.name=word_overlap", "model.name=idf_overlap"]
  assert [m["title"] for m in manifest] == titles
  figures, groups = {}, {}
  for split in ("dev", "test"):
    loaded = run_scores.load([str(output / m["id"]) for m in manifest], split=split)
    figures[split] = {t: s.metric("map")[0] for t, s in zip(titles, loaded)}
    groups[split] = loaded[0].groups
  best = max(titles, key=lambda t: figures["dev"][t].mean())
  table, _, result = printed.partition(f"result: {best}, chosen by MAP on dev")
  assert f"map[sample-clean/test] {figures['test'][best].mean():.4f} ±" in result
  for title in titles:
    line = next(x for x in table.splitlines() if x.strip().startswith(title + " "))
    assert f"{figures['dev'][title].mean():.4f}" in line
    if title != "base":  # without randomness the methods differ as the models do
      pair = figures["dev"][title], figures["dev"]["base"]
      m = significance.methods_test(*pair, fixed=(True, True), groups=groups["dev"])
      assert f"± {m.half_width:.4f} " in line and f" {m.detectable:.4f}" in line
    if figures["test"][title].mean() != figures["test"][best].mean():
      assert f"{figures['test'][title].mean():.4f}" not in result  # no other point's on test
  assert "test was evaluated 3 times in all by 3 runs, at most 1 times by one" in printed
  assert f"result: {best}, chosen by MAP on dev" in (output / "table.md").read_text()
  assert "tabular" in (output / "table.tex").read_text()
  rows = list(csv.DictReader((output / "table.csv").read_text().splitlines()))
  assert {(r["split"], r["system"]) for r in rows} == {(s, t) for s in figures for t in titles}
  for row in rows:
    if row["metric"].startswith("map"):
      assert float(row["mean"]) == pytest.approx(figures[row["split"]][row["system"]].mean())


def test_a_sweep_run_again_runs_nothing(lexical, capsys):
  path, output, printed = lexical
  when = {p: p.stat().st_mtime_ns for p in output.glob("*/results.json")}
  assert app.run(["lab", "sweep", path, f"--output={output}"]) == 0
  again = capsys.readouterr().out
  assert again.startswith("3 runs, 3 of them finished before") and len(when) == 3
  assert when == {p: p.stat().st_mtime_ns for p in output.glob("*/results.json")}
  assert again.split("\n", 1)[1].strip() in printed


def test_an_unfinished_point_is_no_result(lexical, tmp_path):
  path, output, _ = lexical
  jobs = sweep.plan(*sweep.load(path), seeds=(0, 1))
  for job in jobs:
    if job.seed == 0 or job.title != "base":
      first = next(j.id for j in jobs if j.title == job.title and j.seed == 0)
      (tmp_path / job.id).symlink_to(output / first)
  text = sweep.collect(tmp_path, jobs)
  assert "best so far" in text and "result:" not in text and "0.0000 (2)" in text
  assert f"without results: base, seed 1 ({jobs[1].id}): not run yet" in text
  assert sweep.collect(tmp_path / "none", jobs).startswith("no point is finished\nwithout results")


HELD = {"data.holdout": 0.2, "evaluation.splits": ("heldout", "dev", "dev+test")}


@pytest.mark.parametrize(
  "pool, metric, chosen_on, then",
  [
    (False, "map", "sample-clean/heldout", "sample-clean/dev+test"),
    (True, "mrr", "files-gold/dev", "files-gold/test"),
  ],
  ids=["held-out questions", "pool"],
)
def test_what_a_sweep_chooses_by(pool, metric, chosen_on, then, tmp_path):
  base, settings = LEXICAL, HELD
  if pool:
    tiny.write_pool(tmp_path)
    (tmp_path / "config.json").write_text(tiny.pool_config(tmp_path, ranker="bm25").to_json())
    base, settings = f"configs/rerun.py:{tmp_path / 'config.json'}", {}
  jobs = sweep.plan(base, [*POINT, {"model.name": "bm25"}], settings=settings)
  assert [job.title for job in jobs] == ["model.name=bm25 (base)", "model.name=word_overlap"]
  for job in jobs:
    (tmp_path / "config.json").write_text(job.text)
    config = job_files.load(f"configs/rerun.py:{tmp_path / 'config.json'}")
    loop.train_and_evaluate(config, tmp_path / job.id)
  text = sweep.collect(tmp_path, jobs)
  assert text.startswith(f"{metric}[{chosen_on}]") and (f"r@5[{chosen_on}]" in text) == pool
  split = chosen_on.partition("/")[2]
  systems = run_scores.load([str(tmp_path / job.id) for job in jobs], split=split)
  best = int(np.argmax([system.metric(metric).mean() for system in systems]))
  assert f"result: {jobs[best].title}, chosen by {metric.upper()} on {split}" in text
  assert f"  {metric}[{then}] 0." in text  # what the choice came to


def test_a_diverged_point_is_named_in_the_table(lexical, tmp_path, monkeypatch, capsys):
  """One of three runs ends with what a non-finite loss says; the others are compared."""
  path, output, _ = lexical
  jobs = sweep.plan(*sweep.load(path))
  for job in jobs[:2]:
    (tmp_path / job.id).symlink_to(output / job.id)
  words = "as2jax: step 3, seed 0: the loss is nan (gradient norm nan) on questions ['Q1']."
  command = [sys.executable, "-c", f"import sys; print('epoch 1'); sys.exit({words!r})"]
  monkeypatch.setattr(sweep, "command", lambda folder: command)
  named = f"without results: {jobs[2].name} ({jobs[2].id}): {words}"
  for parallel, status in ((1, 1), (0, 0)):
    arguments = ["lab", "sweep", path, f"--output={tmp_path}", f"--parallel={parallel}"]
    assert app.run(arguments) == status
    printed = capsys.readouterr().out
    assert named in printed.splitlines() and "best so far: " in printed
    assert named in (tmp_path / "table.md").read_text()


def test_runs_of_one_seed_are_one_system():
  """Seeds side by side; a note names the seeds that it is of; one random run makes it random."""
  run = lambda value, **fields: run_scores.RunScores(
    "run", "x-clean/test", ("a", "b"), {"map": np.asarray([[value, 0.5]])}, **fields
  )
  before = {"note": "best = before training", "origins": ("p",)}
  top = lambda value: {"top_first": np.asarray([[value, 0.5]])}
  actual = one_system(
    "x", (3, 5), [run(0.1, deterministic=True, **top(1)), run(0.2, **before, **top(0))]
  )
  assert actual.top_first.tolist() == [[1, 0.5], [0, 0.5]]
  assert actual.metric("map").tolist() == [[0.1, 0.5], [0.2, 0.5]] and actual.name == "x"
  assert actual.note == "best = before training (seed 5)" and not actual.deterministic
  both = one_system("x", (3, 5), [run(0.1, **before), run(0.2, **before)])
  assert both.note == "best = before training" and both.shared_stage and not actual.shared_stage
  assert both.top_first is None


def execute(folder, code, parallel=1, count=3, after=()):
  """Run `code` in place of each run, in its folder; return what failed."""
  jobs = [sweep.Job(f"id{i}", f"job {i}", 0, "{}") for i in range(count)]
  for later, first in after:
    jobs[later] = dataclasses.replace(jobs[later], after=(jobs[first],))
  command = lambda place: [sys.executable, "-c", code.replace("FOLDER", repr(str(place)))]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sweep, "command", command)
    return sweep.execute(jobs, folder, parallel=parallel)


FINISH = "import pathlib; (pathlib.Path(FOLDER) / 'results.json').write_text('{}')"


def test_a_failed_run_stops_no_other_and_is_tried_again(tmp_path, capsys):
  code = (
    "import pathlib, sys\nif FOLDER.endswith('id1'):\n"
    "  print('first'); sys.exit('as2jax: no room ')\n"
    "if FOLDER.endswith('id3'): sys.exit(print('gone'))\n" + FINISH
  )
  failed = execute(tmp_path, code, count=6, after=((0, 2), (4, 1), (5, 4)))
  first = "what it begins with has failed"
  # The last of the others ended without results.
  assert failed == {"id1": "as2jax: no room", "id3": "gone", "id4": first, "id5": first}
  done = [sweep.finished(tmp_path / f"id{i}") for i in range(6)]
  assert done == [True, False, True, False, False, False]
  said = capsys.readouterr().out
  assert said.startswith("6 runs, 0 of them finished before")
  assert said.index("id2 job 2, seed 0: finished") < said.index("id0 job 0, seed 0: finished")
  assert "id1 job 1, seed 0: FAILED with status 1: as2jax: no room" in said
  when = lambda: [(tmp_path / f"id{i}/results.json").stat().st_mtime_ns for i in (0, 2)]
  times = when()
  assert not execute(tmp_path, FINISH, count=4) and when() == times
  assert capsys.readouterr().out.startswith("4 runs, 2 of them finished before")
  assert "first" in (tmp_path / "id1" / "log.txt").read_text()


def test_settings_take_the_words_of_other_commands():
  actual = sweep.settings_of(["a=true", "b=False", "c=0.5", "d=word"])
  assert actual == {"a": True, "b": False, "c": 0.5, "d": "word"}


@pytest.mark.parametrize("parallel", [1, 2])
def test_so_many_run_at_a_time(tmp_path, parallel):
  code = (
    "import pathlib, time\nbegin = time.time()\ntime.sleep(0.3)\n"
    "(pathlib.Path(FOLDER) / 'seen').write_text(repr((begin, time.time())))\n" + FINISH
  )
  assert not execute(tmp_path, code, parallel)
  seen = [ast.literal_eval((tmp_path / f"id{i}" / "seen").read_text()) for i in range(3)]
  assert max(sum(b <= t < e for b, e in seen) for t, _ in seen) == parallel


def test_the_runs_of_a_killed_sweep_end(tmp_path):
  """Else the same command finds their folders locked."""
  run = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(60)"
  code = (
    "import pathlib, sys\nfrom as2jax.experiments import sweep\n"
    f"sweep.command = lambda _: [sys.executable, '-c', {run!r}]\n"
    f"sweep.execute([sweep.Job('a', 'a', 0, '{{}}')], pathlib.Path({str(tmp_path)!r}), "
    "parallel=1)"
  )
  process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
  log, end = tmp_path / "a" / "log.txt", time.monotonic() + 60
  while not (log.exists() and log.read_text().endswith("\n")) and time.monotonic() < end:
    time.sleep(0.05)
  process.kill()
  process.wait()
  state = lambda: pathlib.Path(f"/proc/{log.read_text().strip()}/stat")
  while state().exists() and " Z " not in state().read_text() and time.monotonic() < end:
    time.sleep(0.05)
  assert not state().exists() or " Z " in state().read_text()


def test_an_interrupted_sweep_tells_its_runs_to_end(tmp_path):
  code = (
    "import os, pathlib, signal, sys, time\nready = pathlib.Path(FOLDER).parent / 'ready'\n"
    "if FOLDER.endswith('id1'):\n"
    "  while not ready.exists(): time.sleep(0.05)\n  os.kill(os.getppid(), signal.SIGTERM)\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\nready.touch()\n"
    "try:\n  time.sleep(60)\nfinally:\n  (pathlib.Path(FOLDER) / 'saved').touch()\n"
  )
  with pytest.raises(Preempted):  # of which the command ends with status 75
    execute(tmp_path, code, parallel=2)
  assert (tmp_path / "id0" / "saved").exists() and not (tmp_path / "id2").exists()
