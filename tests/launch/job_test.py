"""launch/job.sh with a stand-in for Python."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Says what it was given, ends with 75 at SIGTERM, and holds the host until it ends.
PYTHON = """#!/bin/bash
trap 'echo saved; exit 75' TERM
echo "$AS2JAX_DATA $*"
for ((i = 0; i < 200; i++)); do [ -e "$HOME/go" ] && exit 3; sleep 0.05; done
"""


@pytest.fixture
def start(tmp_path):
  """Starts job.sh in a home of its own, with the words given."""
  python = tmp_path / ".venv" / "bin" / "python"
  python.parent.mkdir(parents=True)
  python.write_text(PYTHON)
  python.chmod(0o755)
  (tmp_path / "launch").mkdir()
  shutil.copy(ROOT / "launch" / "job.sh", tmp_path / "launch")
  environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
  command = ["bash", str(tmp_path / "launch" / "job.sh")]
  with contextlib.ExitStack() as stack:
    yield lambda *words: stack.enter_context(
      subprocess.Popen([*command, *words], env=environment, stdout=subprocess.PIPE, text=True)
    )


def log_of(home, name, words):
  """The text of a log once it has the words."""
  file = home / "logs" / f"{name}.log"
  for _ in range(600):
    if file.exists() and words in file.read_text():
      return file.read_text()
    time.sleep(0.05)
  raise AssertionError(f"{file}: no {words}")


def test_a_run_outlives_its_connection_and_the_next_one_waits(start, tmp_path):
  first = start("config.py", "gs://bucket/runs/x", "--config.epochs=2")
  words = "-m as2jax.main --config=config.py --workdir=gs://bucket/runs/x --config.epochs=2\n"
  assert log_of(tmp_path, "x", words) == f"{tmp_path}/data {words}"
  second = start("config.py", "gs://bucket/runs/y")
  first.stdout.close()
  first.send_signal(signal.SIGHUP)
  time.sleep(0.5)
  assert first.poll() is None and not (tmp_path / "logs" / "y.log").read_text()
  (tmp_path / "go").touch()
  assert first.wait(10) == 3 and second.wait(10) == 3
  assert "--workdir=gs://bucket/runs/y" in log_of(tmp_path, "y", "workdir")


def test_a_run_that_is_told_to_end_saves(start, tmp_path):
  job = start("config.py", "gs://bucket/runs/x")
  log_of(tmp_path, "x", "workdir")
  job.terminate()
  assert job.wait(10) == 75
  assert log_of(tmp_path, "x", "saved") == job.stdout.read()
