"""What processes say to one another, on two that compute nothing; who is silent; flags."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest
import tiny

from as2jax.runtime import processes
from as2jax.runtime.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Both: the same calls. Then process 1 fails, while process 0 is busy with what has no end.
PROGRAM = """
import pathlib, sys, time, jax
jax.config.update("jax_platforms", "cpu")
from as2jax.data import trec_files
from as2jax.runtime import processes
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.runtime.files import lock
port, me, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
processes.start(f"127.0.0.1:{port}", 2, me)
assert (processes.count(), processes.first()) == (2, me == 0)
assert processes.by_first(lambda: {"who": me}) == {"who": 0}

def make():  # the second finds what the first has made, and a message within it goes its own way
  found = (folder / "made").exists()
  inner = processes.by_first(lambda: "inner")
  (folder / "made").touch()
  return found, inner
assert processes.in_order(make) == (me == 1, "inner")

def refuse():
  raise InputError(f"said by {me}")
try:
  processes.by_first(refuse)
except InputError as error:
  assert str(error) == "said by 0"
else:
  raise AssertionError
write_whole(folder / "who.txt", str(me))
with lock(folder):  # one lock for both, which a run of its own would not get
  pass
trec_files.write_qrels(folder / f"qrels-{me}.trec", ["Q"], [["D"]], [[1]])
print("agreed", flush=True)
if me == 1:
  processes.leave(2, "no room")
processes.by_first(lambda: time.sleep(600))
"""


def pair(program, folder, *arguments):
  """Two processes of a program, which gets a port, its number and `arguments`; files of their output."""
  port = str(tiny.free_port())
  started, logs = [], [folder / f"{k}.txt" for k in range(2)]
  for k, log in enumerate(logs):
    with open(log, "w") as file:
      command = [sys.executable, "-c", program, port, str(k), *arguments]
      env = {**os.environ, "PYTHONPATH": str(ROOT)}
      started.append(subprocess.Popen(command, env=env, stdout=file, stderr=file))
  return started, logs


def test_two_processes_agree_and_the_failure_of_one_ends_the_other(tmp_path):
  folder = tmp_path / "run"
  folder.mkdir()
  started, logs = pair(PROGRAM, tmp_path, str(folder))
  for process, log in zip(started, logs):  # not the 600 s that process 0 meant to sleep
    assert process.wait(290) == 2 and "agreed\n" in log.read_text(), log.read_text()[-3000:]
  assert "as2jax (process 0): process 1 has failed: no room" in logs[0].read_text()
  assert (folder / "who.txt").read_text() == "0"
  assert [path.name for path in sorted(folder.glob("qrels*"))] == ["qrels-0.trec"]


@pytest.mark.parametrize("flags", [("", 2, -1), ("host:1", 2, 2), ("host", 2, 0)])
def test_half_the_flags_are_refused(flags):
  with pytest.raises(InputError, match="several processes need all three"):
    processes.start(*flags)
  assert processes.count() == 1 and not processes.started()


def test_a_single_process_starts_nothing(monkeypatch):
  monkeypatch.setattr(processes, "on_tpu_vm", lambda: False)
  processes.start()
  monkeypatch.setattr(processes, "on_tpu_vm", lambda: True)
  processes.start(processes=1)
  assert processes.first() and not processes.started()
  assert processes.by_first(lambda: 1) == processes.in_order(lambda: 1) == 1


LATE = """
import sys, time
from as2jax.runtime import processes
me = int(sys.argv[2])
processes.start(f"127.0.0.1:{sys.argv[1]}", 2, me)
processes.stop()
if me == 0:
  processes.leave(3, "full")
  sys.exit(3)
time.sleep(2)
"""


def test_an_error_after_the_end_of_the_messages_leaves_the_others_their_own_end(tmp_path):
  started, logs = pair(LATE, tmp_path)
  assert [process.wait(120) for process in started] == [3, 0]
  assert logs[0].read_text() == ""


SILENT = """
import sys, time, jax
jax.config.update("jax_platforms", "cpu")
from as2jax.runtime import processes
processes.start(f"127.0.0.1:{sys.argv[1]}", 2, int(sys.argv[2]))
time.sleep(3)  # both have been heard
print("ready", flush=True)
time.sleep(600)
"""


def await_words(log, words, seconds):
  end = time.monotonic() + seconds
  while words not in log.read_text():
    assert time.monotonic() < end, log.read_text()
    time.sleep(0.1)


@pytest.mark.slow  # half a minute of waiting
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_process_is_named_by_the_other_within_30_seconds(tmp_path, stopped):
  """The one that holds the service, too."""
  started, logs = pair(SILENT, tmp_path)
  name = f"process {stopped} on {socket.gethostname()}"
  try:
    for log in logs:
      await_words(log, "ready", 120)
    started[stopped].send_signal(signal.SIGSTOP)
    await_words(logs[1 - stopped], f"{name} has not answered for 20 s", 30)
    started[stopped].send_signal(signal.SIGCONT)
    await_words(logs[1 - stopped], f"{name} answers again", 30)
  finally:
    for process in started:
      process.kill()
      process.wait()
