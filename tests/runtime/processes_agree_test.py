"""What processes say to one another, on two that compute nothing; flags and TPU machines."""

import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

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
assert (processes.index(), processes.count(), processes.first()) == (me, 2, me == 0)
assert processes.by_first(lambda: {"who": me}) == {"who": 0}

assert processes.gather(lambda: [me]) == [[0], [1]]

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


def test_two_processes_agree_and_the_failure_of_one_ends_the_other(tmp_path):
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
  folder = tmp_path / "run"
  folder.mkdir()
  began = time.monotonic()
  processes = [
    subprocess.Popen(
      [sys.executable, "-c", PROGRAM, port, str(k), str(folder)],
      text=True,
      env={**os.environ, "PYTHONPATH": str(ROOT)},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
    )
    for k in range(2)
  ]
  output = [process.communicate(timeout=300) for process in processes]
  for process, (said, errors) in zip(processes, output):
    assert said == "agreed\n" and process.returncode == 2, errors[-3000:]
  assert "as2jax (process 0): process 1 has failed: no room" in output[0][1]
  assert time.monotonic() - began < 290  # not the 600 s that process 0 meant to sleep
  assert (folder / "who.txt").read_text() == "0"
  assert [path.name for path in sorted(folder.glob("qrels*"))] == ["qrels-0.trec"]


@pytest.mark.parametrize(
  "flags",
  [
    ("", 2, -1),
    ("", 0, 1),
    ("host:1", 0, -1),
    ("host:1", 2, -1),
    ("host:1", 2, 2),
    ("host", 2, 0),
    ("auto", 2, 0),
  ],
)
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
