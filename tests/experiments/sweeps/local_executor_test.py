"""The local executor of sweeps, with processes of our own."""

import ast
import os
import pathlib
import subprocess
import sys
import time

import pytest

from as2jax.experiments.sweeps import local_executor, points
from as2jax.runtime import preemption

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch):
  monkeypatch.chdir(ROOT)


def jobs_of(count):
  return [points.Job(f"id{i}", i, f"job {i}", {}, 0, "{}") for i in range(count)]


def script(code):
  """A command that runs `code` in place of a run, in its folder."""
  return lambda folder: [sys.executable, "-c", code.replace("FOLDER", repr(str(folder)))]


FINISH = "import pathlib; (pathlib.Path(FOLDER) / 'results.json').write_text('{}')"


def test_a_failed_run_stops_no_other_and_is_tried_again(tmp_path):
  code = (
    "import pathlib, sys\nif FOLDER.endswith('id1'):\n"
    "  print('first'); sys.exit('as2jax: no room ')\n" + FINISH
  )
  said = []
  failed = local_executor.execute(
    jobs_of(3), tmp_path, parallel=1, say=said.append, make_command=script(code)
  )
  assert failed == {"id1": "as2jax: no room"}
  assert [local_executor.finished(tmp_path / f"id{i}") for i in range(3)] == [True, False, True]
  assert said[0] == "3 runs, 0 of them finished before"
  assert any("id1 job 1: FAILED with status 1: as2jax: no room" in line for line in said)
  times = {i: (tmp_path / f"id{i}" / "results.json").stat().st_mtime_ns for i in (0, 2)}
  assert (
    local_executor.execute(
      jobs_of(3), tmp_path, parallel=1, say=said.append, make_command=script(FINISH)
    )
    == {}
  )
  assert "3 runs, 2 of them finished before" in said
  assert times == {i: (tmp_path / f"id{i}" / "results.json").stat().st_mtime_ns for i in (0, 2)}
  assert "first" in (tmp_path / "id1" / "log.txt").read_text()


def test_settings_take_the_words_of_other_commands():
  assert points.settings_of(["a=true", "b=False", "c=0.5", "d=word"]) == {
    "a": True,
    "b": False,
    "c": 0.5,
    "d": "word",
  }


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux alone pins processes")
@pytest.mark.parametrize(("jobs", "parallel"), [(3, 2), (1, 2), (2, 1)])
def test_runs_at_a_time_share_the_cores(tmp_path, jobs, parallel):
  """Each place has its share; a run alone has all of them."""
  here = sorted(os.sched_getaffinity(0))
  code = (
    "import os, pathlib, time\ntime.sleep(0.3)\n"
    "(pathlib.Path(FOLDER) / 'cores').write_text(repr(sorted(os.sched_getaffinity(0))))\n" + FINISH
  )
  assert not local_executor.execute(
    jobs_of(jobs), tmp_path, parallel=parallel, say=[].append, make_command=script(code)
  )
  seen = [ast.literal_eval((tmp_path / f"id{i}" / "cores").read_text()) for i in range(jobs)]
  if min(jobs, parallel) == 1:
    assert seen == [here] * jobs
  else:
    shares = [here[i % len(here) :: parallel] for i in range(parallel)]
    assert seen[:2] == shares and seen[2] in shares


def test_more_runs_than_cores_have_one_core_each(monkeypatch):
  monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 4, 7}, raising=False)
  shares = [local_executor.share_of_cores(place, 5) for place in range(5)]
  assert shares == [{1}, {4}, {7}, {1}, {4}]
  assert [local_executor.share_of_cores(place, 2) for place in range(2)] == [{1, 7}, {4}]


def test_a_run_that_was_told_to_end_goes_on(tmp_path):
  code = (
    "import pathlib, sys\nmark = pathlib.Path(FOLDER) / 'mark'\n"
    f"if not mark.exists():\n  mark.touch(); sys.exit({preemption.AGAIN})\n" + FINISH
  )
  said = []
  assert (
    local_executor.execute(
      jobs_of(2), tmp_path, parallel=1, say=said.append, make_command=script(code)
    )
    == {}
  )
  assert all(local_executor.finished(tmp_path / f"id{i}") for i in range(2))
  assert sum("it goes on later" in line for line in said) == 2


@pytest.mark.parametrize("end", ["sys.exit(130)", "os.kill(os.getpid(), signal.SIGINT)"])
def test_an_interrupted_run_ends_the_sweep(tmp_path, end):
  """Also with the signal itself as status; the other runs are told to end."""
  code = (
    "import os, pathlib, signal, sys, time\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
    "ready = pathlib.Path(FOLDER).parent / 'ready'\n"
    "if FOLDER.endswith('id1'):\n"
    f"  while not ready.exists(): time.sleep(0.05)\n  {end}\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\nready.touch()\n"
    "try:\n  time.sleep(60)\nfinally:\n  (pathlib.Path(FOLDER) / 'saved').touch()\n"
  )
  said = []
  with pytest.raises(KeyboardInterrupt, match="id1 job 1"):
    local_executor.execute(
      jobs_of(3), tmp_path, parallel=2, say=said.append, make_command=script(code)
    )
  assert said == ["3 runs, 0 of them finished before"]
  assert (tmp_path / "id0" / "saved").exists() and not (tmp_path / "id2").exists()


def test_a_run_without_results_has_failed(tmp_path):
  failed = local_executor.execute(
    jobs_of(1), tmp_path, parallel=1, say=lambda line: None, make_command=script("print('gone')")
  )
  assert failed == {"id0": "gone"}


@pytest.mark.parametrize("parallel", [1, 2])
def test_so_many_run_at_a_time(tmp_path, parallel):
  code = (
    "import pathlib, time\nplace = pathlib.Path(FOLDER)\n"
    "(place / 'begin').write_text(repr(time.time()))\ntime.sleep(0.5)\n"
    "(place / 'end').write_text(repr(time.time()))\n" + FINISH
  )
  local_executor.execute(
    jobs_of(4), tmp_path, parallel=parallel, say=lambda line: None, make_command=script(code)
  )
  read = lambda name: [float((tmp_path / f"id{i}" / name).read_text()) for i in range(4)]
  begins, ends = read("begin"), read("end")
  most = max(sum(b <= t < e for b, e in zip(begins, ends)) for t in begins)
  assert most == parallel


def test_a_run_of_another_process_is_waited_for(tmp_path):
  """What a killed sweep left running: it is neither run twice nor taken for a failure."""
  (tmp_path / "id0").mkdir()
  holder = subprocess.Popen(
    [
      sys.executable,
      "-c",
      f"""
import pathlib, time
from as2jax.runtime.files import lock
with lock({str(tmp_path / "id0")!r}):
  pathlib.Path({str(tmp_path)!r}, "held").touch()
  time.sleep(1)
  pathlib.Path({str(tmp_path / "id0")!r}, "results.json").write_text("theirs")
""",
    ]
  )
  while not (tmp_path / "held").exists():
    assert holder.poll() is None
    time.sleep(0.05)
  said = []
  assert (
    local_executor.execute(
      jobs_of(2), tmp_path, parallel=1, say=said.append, make_command=script(FINISH)
    )
    == {}
  )
  assert holder.wait(10) == 0
  assert (tmp_path / "id0" / "results.json").read_text() == "theirs"
  assert "id0 job 0: another process finished it" in said
