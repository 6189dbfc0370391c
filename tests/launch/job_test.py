"""launch/job.sh with stand-ins for Python and gcloud: what keeps its log ends with the run."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_what_keeps_the_log_ends_with_the_run_where_the_script_was_killed(tmp_path):
  for name, program in (
    ("gcloud", '[ "$2" != ls ]'),
    ("python", 'sleep 2; echo done >"$HOME/ran"'),
  ):
    file = tmp_path / (".venv/bin" if name == "python" else "bin") / name
    file.parent.mkdir(parents=True)
    file.write_text(f'#!/bin/bash\necho "$*" >>"$HOME/{name}"\n{program}\n')
    file.chmod(0o755)
  (tmp_path / "launch").mkdir()
  shutil.copy(ROOT / "launch" / "job.sh", tmp_path / "launch")
  path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
  environment = {**os.environ, "HOME": str(tmp_path), "PATH": path, "LOOK": "0.2"}
  script = tmp_path / "launch" / "job.sh"
  job = subprocess.Popen(["bash", script, "config.py", "gs://bucket/x"], env=environment)
  wait_for(lambda: (tmp_path / "python").exists())
  job.send_signal(signal.SIGTERM)
  assert job.wait() == -signal.SIGTERM
  wait_for(lambda: (tmp_path / "ran").exists())  # the run went on
  calls = tmp_path / "gcloud"
  wait_for(lambda: calls.stat().st_mtime < time.time() - 3)


def wait_for(holds, seconds=30.0):
  end = time.monotonic() + seconds
  while not holds():
    assert time.monotonic() < end
    time.sleep(0.05)
