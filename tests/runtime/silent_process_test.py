"""A process that stops answering is named, with its host, within 30 seconds."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from as2jax.runtime import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, time, jax
jax.config.update("jax_platforms", "cpu")
from as2jax.runtime import processes
processes.start(f"127.0.0.1:{sys.argv[1]}", 2, int(sys.argv[2]))
time.sleep(3)  # both have been heard
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def watch(monkeypatch):
  """A watch of process 0 of three, without threads and service."""
  monkeypatch.setattr(processes._Run, "count", 3)
  watchdog = object.__new__(processes._Watchdog)
  watchdog._answered, watchdog._named = 100.0, set()
  watchdog._heard = {i: (9, f"host-{i}", 100.0) for i in range(3)}
  return watchdog


def test_each_is_named_once_and_again_when_it_answers(watch):
  assert watch.silent(100.0 + processes.SILENCE) == []
  watch._answered, watch._heard[1] = 121.0, (10, "host-1", 121.0)
  (line,) = watch.silent(121.0)
  assert line.startswith("process 2 on host-2 has not answered for 20 s")
  watch._answered = 125.0
  assert watch.silent(125.0) == []
  watch._heard[2] = (10, "host-2", 125.0)
  assert watch.silent(126.0) == ["process 2 on host-2 answers again"]


def test_without_the_service_its_process_is_named(watch, monkeypatch):
  monkeypatch.setattr(processes._Run, "index", 1)
  (line,) = watch.silent(121.0)
  assert line.startswith("process 0 on host-0 ")


def test_who_has_ended_is_not_missed(watch):
  watch._answered = 200.0
  watch._heard[1] = watch._heard[2] = (processes.ENDED, "", 100.0)
  assert watch.silent(200.0) == []


@pytest.mark.slow  # half a minute of waiting
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_process_is_named_by_the_other_within_30_seconds(tmp_path, stopped):
  """The one that holds the service, too."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
  started = []
  for k in range(2):
    with open(tmp_path / f"{k}.txt", "w") as log:
      command = [sys.executable, "-c", PROGRAM, port, str(k)]
      env = {**os.environ, "PYTHONPATH": str(ROOT)}
      started.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
  said = lambda k: (tmp_path / f"{k}.txt").read_text()
  try:
    end = time.monotonic() + 120
    while not all("ready" in said(k) for k in range(2)):
      assert time.monotonic() < end and all(p.poll() is None for p in started), said(0) + said(1)
      time.sleep(0.1)
    began = time.monotonic()
    started[stopped].send_signal(signal.SIGSTOP)
    words = f"process {stopped} on {socket.gethostname()} has not answered for 20 s"
    while words not in said(1 - stopped):
      assert time.monotonic() - began < 30, said(1 - stopped)
      time.sleep(0.1)
    started[stopped].send_signal(signal.SIGCONT)
    began = time.monotonic()
    while f"process {stopped} on {socket.gethostname()} answers again" not in said(1 - stopped):
      assert time.monotonic() - began < 30, said(1 - stopped)
      time.sleep(0.1)
  finally:
    for process in started:
      process.kill()
      process.wait()
