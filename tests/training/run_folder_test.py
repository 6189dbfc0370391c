"""The run's folder: config, log, lock."""

import json
import os
import pathlib
import signal

import pytest
from ml_collections import ConfigDict

from as2jax.config.overrides import differences, flatten
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.runtime.folder_lock import lock
from as2jax.training.early_stopping import Tracker
from as2jax.training.run_folder import MetricsLog, change_seeds, claim


def config(**changes):
  return ConfigDict(
    {
      "mode": "train",
      "seeds": (0, 1),
      "seeds_parallel": False,
      "optimizer": {"rate": 1e-3},
      "data": {"download": True},
      "log": {"steps": 5},
      **changes,
    }
  )


def test_claim_writes_once_and_then_compares(tmp_path):
  claim(tmp_path, config(optimizer={"rate": 0.5}))  # nothing came of it: the folder is still new
  claim(tmp_path, config())
  (tmp_path / "checkpoints" / "latest" / "0").mkdir(parents=True)
  first = (tmp_path / "config.json").read_text()
  assert json.loads(first)["seeds"] == [0, 1]
  free = {"mode": "predict", "data": {"download": False}, "log": {"steps": 9}}
  claim(tmp_path, config(**free))  # these change no number
  assert (tmp_path / "config.json").read_text() == first
  with pytest.raises(InputError, match=r"optimizer.rate: 0.001 there, 0.1 now\n.*seeds: \[0, 1\]"):
    claim(tmp_path, config(optimizer={"rate": 0.1}, seeds=(0,)))
  (tmp_path / "config.json").write_text("{")
  with pytest.raises(InputError, match="not valid JSON"):
    claim(tmp_path, config())


def left_by(folder, *paths):
  for path in paths:
    (folder / path).mkdir(parents=True) if path.endswith("/") else write_whole(folder / path, "x")


def files_in(folder):
  return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_seeds_are_added_to_a_run_of_several(tmp_path):
  assert claim(tmp_path, config())
  paths = ("checkpoints/seed-0/latest/7/a", "eval/test/seed-1/run.trec", "evaluations.jsonl")
  left_by(tmp_path, *paths, "results.json", "report.html")
  before = files_in(tmp_path), (tmp_path / "config.json").read_text()
  more = config(seeds=(0, 1, 4), log={"steps": 9})
  assert not claim(tmp_path, more)  # nothing is lost before all else was compared
  assert before == (files_in(tmp_path), (tmp_path / "config.json").read_text())
  change_seeds(tmp_path, more)
  assert claim(tmp_path, more)
  assert json.loads((tmp_path / "config.json").read_text())["seeds"] == [0, 1, 4]
  assert files_in(tmp_path) == sorted([*paths, "config.json"])
  for seeds in ((1, 0, 4, 5), (0, 4, 1), (0,)):
    with pytest.raises(InputError, match=r"seeds: \[0, 1, 4\] there.*\nSeeds can be added after"):
      claim(tmp_path, config(seeds=seeds))
  with pytest.raises(InputError, match=r"rate: 0.001 there, 0.1 now\n  seeds.*\nGive another"):
    claim(tmp_path, config(seeds=(0, 1, 4, 5), optimizer={"rate": 0.1}))


def test_seeds_that_have_not_begun_can_be_left_out(tmp_path):
  """As where 50 were typed in place of 5."""
  claim(tmp_path, config(seeds=tuple(range(50))))
  left_by(tmp_path, "checkpoints/seed-0/latest/7/", "checkpoints/seed-1/latest/0/")
  fewer = config(seeds=(0, 1))
  assert not claim(tmp_path, fewer)
  change_seeds(tmp_path, fewer)
  assert claim(tmp_path, fewer)
  change_seeds(tmp_path, config(seeds=(0, 1, 2)))
  left_by(tmp_path, "checkpoints/seed-2/latest/7/")
  with pytest.raises(InputError, match=r"seeds: \[0, 1, 2\] there, \[0, 1\] now"):
    claim(tmp_path, fewer)


def test_seeds_that_train_together_are_not_added_to(tmp_path):
  claim(tmp_path, config(seeds_parallel=True))
  left_by(tmp_path, "checkpoints/seed-0-1/latest/7/")
  with pytest.raises(InputError, match=r"seeds: \[0, 1\] there"):
    claim(tmp_path, config(seeds=(0, 1, 2), seeds_parallel=True))


def test_what_a_single_seed_has_left_becomes_that_of_one_of_several(tmp_path):
  """Also where a kill has stopped the first attempt half-way."""
  claim(tmp_path, config(seeds=(3,)))
  kept = ("metrics.jsonl", "checkpoints/seed-3/best/4/a")
  moved = (
    "checkpoints/{}latest/7/b",
    "diagnostics/{}epoch-000/c",
    "eval/test/{}cosine/d",
    "eval/dev/{}e",
  )
  left_by(tmp_path, *kept, *(path.format("") for path in moved), "results.json")
  assert not claim(tmp_path, config(seeds=(3, 0)))
  change_seeds(tmp_path, config(seeds=(3, 0)))
  there = [*kept, *(path.format("seed-3/") for path in moved), "config.json"]
  assert files_in(tmp_path) == sorted(there)


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
  again.write(1, 3, {"epoch": 1})
  again.flush()
  again.roll_back((1,), 3, evaluated=True)
  assert '"epoch"' in again.path.read_text()
  again.roll_back((1,), 3, evaluated=False)  # it will be made, and written, again
  assert '"epoch"' not in again.path.read_text() and '"step": 3' in again.path.read_text()
  assert list((tmp_path / "tensorboard/seed-0").iterdir())


@pytest.mark.parametrize("damage", ["cut", "zeros", "none"])
def test_a_log_that_has_lost_rows_says_how_many(tmp_path, caplog, damage):
  """What a power failure may leave has no line that could be named."""
  log = MetricsLog(tmp_path, tensorboard=False)
  log.roll_back((0, 1), -1)
  for step in (1, 2, 3, 4):
    for seed in (0, 1):
      log.write(seed, step, {"loss": 0.5})
    log.flush(durable=True)
  assert log.count((0,)) == 4 and log.count((0, 1)) == 8
  saved = 3 * 2  # at step 3
  data = log.path.read_bytes()
  lines = data.splitlines(keepends=True)
  log.path.write_bytes({"cut": b"".join(lines[:4]), "zeros": b"\0" * 99, "none": data}[damage])
  again = MetricsLog(tmp_path, tensorboard=False)
  again.roll_back((0, 1), 3, rows=saved)
  lost = {"cut": 2, "zeros": 6, "none": 0}[damage]
  said = [f"{again.path} has lost {lost} rows from before step 4"] if lost else []
  assert [record.getMessage() for record in caplog.records] == said
  assert again.count((0, 1)) == saved - lost


def test_a_log_that_is_a_pipe_is_not_opened(tmp_path):
  os.mkfifo(tmp_path / "metrics.jsonl")
  with pytest.raises(InputError, match="metrics.jsonl is a named pipe"):
    MetricsLog(tmp_path, tensorboard=False).roll_back((0,), 1)


def test_a_damaged_log_names_its_line(tmp_path):
  log = MetricsLog(tmp_path, tensorboard=False)
  (tmp_path / "metrics.jsonl").write_text('{"seed": 0, "step": 1}\n{"seed"\n')
  with pytest.raises(InputError, match="metrics.jsonl:2: not JSON"):
    log.roll_back((0,), 1)
  (tmp_path / "metrics.jsonl").write_text("3\n")
  with pytest.raises(InputError, match="metrics.jsonl:1: no row"):
    log.roll_back((0,), 1)


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


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="bytes are counted by Linux")
def test_a_flush_writes_the_same_at_any_length(tmp_path):
  log = MetricsLog(tmp_path, tensorboard=False)
  sizes = {}
  for rows in (100, 10_000):
    for step in range(rows):
      log.write(0, step, {"loss": 0.5})
    log.flush()
    sizes[rows] = min(_written(log) for _ in range(5))
  assert sizes[10_000] == sizes[100] < 100


def _written(log):
  """Bytes that this process writes while one row is flushed."""
  count = lambda: int(pathlib.Path("/proc/self/io").read_text().split()[3])
  log.write(0, 7, {"loss": 0.5})
  before = count()
  log.flush()
  return count() - before


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


@pytest.mark.parametrize(
  "line", [b"\xff", b"[" * 100_000, b'{"seed": 0}', b'{"seed": 0, "step": "2"}', b"[]"]
)
def test_a_line_of_the_log_that_is_no_row_is_named(tmp_path, line):
  (tmp_path / "metrics.jsonl").write_bytes(b'{"seed": 0, "step": 1}\n' + line + b"\n")
  with pytest.raises(InputError, match="metrics.jsonl:2: .*Delete the line"):
    MetricsLog(tmp_path, tensorboard=False).roll_back((0,), 1)


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]"])
def test_a_config_that_is_no_object_is_named(tmp_path, text):
  claim(tmp_path, config())
  (tmp_path / "checkpoints/latest/1").mkdir(parents=True)
  (tmp_path / "config.json").write_text(text)
  with pytest.raises(InputError, match="config.json: .*give another --workdir"):
    claim(tmp_path, config())
