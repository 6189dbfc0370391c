"""The local executor of sweeps, with processes of our own."""

import ast
import sys

import pytest

from as2jax.experiments.sweeps import local_executor, points


def execute(count, folder, code, parallel=1):
  """Run `code` in place of each of so many runs, in its folder; return what failed, and what was said."""
  jobs = [points.Job(f"id{i}", i, f"job {i}", {}, 0, "{}") for i in range(count)]
  command = lambda place: [sys.executable, "-c", code.replace("FOLDER", repr(str(place)))]
  said = []
  failed = local_executor.execute(
    jobs, folder, parallel=parallel, say=said.append, make_command=command
  )
  return failed, said


FINISH = "import pathlib; (pathlib.Path(FOLDER) / 'results.json').write_text('{}')"


def test_a_failed_run_stops_no_other_and_is_tried_again(tmp_path):
  code = (
    "import pathlib, sys\nif FOLDER.endswith('id1'):\n"
    "  print('first'); sys.exit('as2jax: no room ')\n"
    "if FOLDER.endswith('id3'): sys.exit(print('gone'))\n" + FINISH
  )
  failed, said = execute(4, tmp_path, code)
  assert failed == {"id1": "as2jax: no room", "id3": "gone"}  # the last ended without results
  done = [local_executor.finished(tmp_path / f"id{i}") for i in range(4)]
  assert done == [True, False, True, False] and said[0] == "4 runs, 0 of them finished before"
  assert any("id1 job 1: FAILED with status 1: as2jax: no room" in line for line in said)
  when = lambda: [(tmp_path / f"id{i}/results.json").stat().st_mtime_ns for i in (0, 2)]
  times = when()
  failed, said = execute(4, tmp_path, FINISH)
  assert not failed and said[0] == "4 runs, 2 of them finished before" and when() == times
  assert "first" in (tmp_path / "id1" / "log.txt").read_text()


def test_settings_take_the_words_of_other_commands():
  actual = points.settings_of(["a=true", "b=False", "c=0.5", "d=word"])
  assert actual == {"a": True, "b": False, "c": 0.5, "d": "word"}


@pytest.mark.parametrize("parallel", [1, 2])
def test_so_many_run_at_a_time(tmp_path, parallel):
  code = (
    "import pathlib, time\nbegin = time.time()\ntime.sleep(0.3)\n"
    "(pathlib.Path(FOLDER) / 'seen').write_text(repr((begin, time.time())))\n" + FINISH
  )
  assert not execute(3, tmp_path, code, parallel)[0]
  seen = [ast.literal_eval((tmp_path / f"id{i}" / "seen").read_text()) for i in range(3)]
  assert max(sum(b <= t < e for b, e in seen) for t, _ in seen) == parallel


def test_an_interrupted_sweep_tells_its_runs_to_end(tmp_path):
  code = (
    "import os, pathlib, signal, sys, time\nready = pathlib.Path(FOLDER).parent / 'ready'\n"
    "if FOLDER.endswith('id1'):\n"
    "  while not ready.exists(): time.sleep(0.05)\n  os.kill(os.getppid(), signal.SIGTERM)\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\nready.touch()\n"
    "try:\n  time.sleep(60)\nfinally:\n  (pathlib.Path(FOLDER) / 'saved').touch()\n"
  )
  with pytest.raises(KeyboardInterrupt):
    execute(3, tmp_path, code, parallel=2)
  assert (tmp_path / "id0" / "saved").exists() and not (tmp_path / "id2").exists()
