"""The local executor of sweeps, with processes of our own."""

import ast
import dataclasses
import pathlib
import subprocess
import sys
import time

import pytest

from as2jax.experiments.sweeps import local_executor, points

ROOT = pathlib.Path(local_executor.__file__).parents[3]


def execute(folder, code, parallel=1, count=3, after=()):
  """Run `code` in place of each run, in its folder; return what failed."""
  jobs = [points.Job(f"id{i}", f"job {i}", 0, "{}") for i in range(count)]
  for later, first in after:
    jobs[later] = dataclasses.replace(jobs[later], after=(jobs[first],))
  command = lambda place: [sys.executable, "-c", code.replace("FOLDER", repr(str(place)))]
  return local_executor.execute(jobs, folder, parallel=parallel, make_command=command)


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
  done = [local_executor.finished(tmp_path / f"id{i}") for i in range(6)]
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
  actual = points.settings_of(["a=true", "b=False", "c=0.5", "d=word"])
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
    "import pathlib, sys\nfrom as2jax.experiments.sweeps import local_executor, points\n"
    f"local_executor.execute([points.Job('a', 'a', 0, '{{}}')], pathlib.Path({str(tmp_path)!r}), "
    f"parallel=1, make_command=lambda _: [sys.executable, '-c', {run!r}])"
  )
  sweep = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
  log, end = tmp_path / "a" / "log.txt", time.monotonic() + 60
  while not (log.exists() and log.read_text().endswith("\n")) and time.monotonic() < end:
    time.sleep(0.05)
  sweep.kill()
  sweep.wait()
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
  with pytest.raises(KeyboardInterrupt):
    execute(tmp_path, code, parallel=2)
  assert (tmp_path / "id0" / "saved").exists() and not (tmp_path / "id2").exists()
