"""SIGINT (^C) to real processes: one line, what there is to save saved, status 130."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest
import tiny

from as2jax.commands import app, output
from as2jax.evaluation import predict
from as2jax.runtime import preemption
from as2jax.training import loop
from as2jax.training.loop import train_and_evaluate

ROOT = pathlib.Path(__file__).resolve().parents[2]
STARTED = []  # by the test that runs


@pytest.fixture(autouse=True)
def _heard():
  """A process that a shell starts in the background ignores SIGINT, and so do its children."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)
  while STARTED:
    with STARTED.pop() as process:
      process.kill()


def begin(*command, **options):
  """A process of Python, in the repository."""
  process = subprocess.Popen(
    [sys.executable, *map(str, command)],
    cwd=ROOT,
    text=True,
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    **options,
  )
  STARTED.append(process)
  return process


# A module of this name is what Python runs first: SIGINT comes when it imports a certain module.
FIRST = """
import os, signal, sys
class Finder:
  def find_spec(name, path=None, target=None):
    if name == os.environ["INTERRUPTED_AT"]:
      signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize(
  "command, module", [("as2jax.main", "jax"), ("as2jax", "as2jax.commands.app")]
)
def test_during_the_imports_it_is_one_line(tmp_path, command, module):
  (tmp_path / "sitecustomize.py").write_text(FIRST)
  environment = {**os.environ, "PYTHONPATH": str(tmp_path), "INTERRUPTED_AT": module}
  arguments = ["--config=wikiqa_triplet:sample", f"--workdir={tmp_path / 'run'}"]
  if command == "as2jax":
    arguments = ["--help"]
  process = begin("-m", command, *arguments, env=environment)
  out, err = process.communicate(timeout=60)
  assert process.returncode == 130 and out == ""
  last = err.splitlines()[-1]
  assert last == "as2jax: stopped by SIGINT: there was nothing to save; the same command goes on"
  assert "Traceback" not in err


# The main thread is in a call that runs none of Python's handlers, as in a compilation.
BUSY = """
import contextlib, hashlib, sys
from as2jax.runtime import preemption
preemption.listen_for_interrupt()
with preemption.deferred() if sys.argv[1] == "deferred" else contextlib.nullcontext():
  print("busy", flush=True)
  hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""


@pytest.mark.parametrize("where", ["deferred", "elsewhere"])
def test_during_a_long_call_it_ends_at_once(where):
  """With something to save it takes two: the first waits for the next point, and says so."""
  process = begin("-c", BUSY, where)
  assert process.stdout.readline() == "busy\n"
  process.send_signal(signal.SIGINT)
  lines = []
  if where == "deferred":
    lines.append(process.stderr.readline())
    assert "it ends when the step under way is done and saved" in lines[0]
    process.send_signal(signal.SIGINT)
  _, err = process.communicate(timeout=30)
  assert process.returncode == 130
  assert err.startswith(
    "as2jax: stopped by a second SIGINT"
    if where == "deferred"
    else "as2jax: stopped by SIGINT: there was nothing to save"
  )
  assert len(err.splitlines()) == 1


def test_an_interrupt_that_a_command_hears_is_one_line(monkeypatch, capsys):
  """As of a sweep, which ends its runs first; typer makes a status alone of it."""

  def interrupted(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(output, "emit", interrupted)
  assert app.run(["list", "keys"]) == 130
  assert capsys.readouterr().err == "as2jax: stopped by SIGINT; run the same command again\n"


def test_what_comes_at_the_very_end_changes_nothing():
  program = (
    "import atexit, signal\nfrom as2jax.runtime import preemption\n"
    "preemption.listen_for_interrupt()\npreemption.work_is_done()\n"
    "atexit.register(signal.raise_signal, signal.SIGINT)"
  )
  out, err = (process := begin("-c", program)).communicate(timeout=30)
  assert (out, err, process.returncode) == ("", "", 0)


TABLES = [path for path in map(pathlib.Path, ("/proc/net/tcp", "/proc/net/tcp6")) if path.exists()]
# Two processes pass points until they are told to end, and say at which.
PAIR = """
import sys, time, jax
jax.config.update("jax_platforms", "cpu")
from as2jax.runtime import preemption, processes
preemption.listen_for_interrupt()
processes.start(f"127.0.0.1:{sys.argv[1]}", 2, int(sys.argv[2]))
preemption.listen()
processes.by_first(lambda: None)
print("started", flush=True)
while not preemption.due():
  time.sleep(0.1)
print(preemption._Heard.point, preemption.reason(), flush=True)
processes.stop()
sys.exit(preemption.status())
"""


def test_to_one_of_two_processes_ends_both_at_one_point():
  port = tiny.free_port()
  pair = [begin("-c", PAIR, port, k) for k in range(2)]
  assert [process.stdout.readline() for process in pair] == ["started\n"] * 2
  # 127.0.0.1 and no other interface, as the kernel writes it, also as an address of IPv6.
  lines = [line for path in TABLES for line in path.read_text().splitlines()[1:]]
  rows = [line.split()[1:4] for line in lines]
  places = {place for place, _, state in rows if state == "0A" and place.endswith(f":{port:04X}")}
  known = {f"{a}:{port:04X}" for a in ("0100007F", "0000000000000000FFFF00000100007F")}
  assert places and places <= known
  pair[1].send_signal(signal.SIGINT)
  said = [process.communicate(timeout=120) for process in pair]
  assert [process.returncode for process in pair] == [preemption.AGAIN, 130], said
  points, reasons = zip(*(out.split() for out, _ in said))
  assert points[0] == points[1] and reasons == ("SIGTERM", "SIGINT")


@pytest.fixture
def listening(monkeypatch):
  """SIGTERM is heard as in `main`, and forgotten afterwards."""
  before = signal.getsignal(signal.SIGTERM)
  monkeypatch.setattr(preemption._Heard, "signal", False)
  preemption.listen()
  yield
  signal.signal(signal.SIGTERM, before)


def terminate():
  os.kill(os.getpid(), signal.SIGTERM)


def config():
  return tiny.config(
    "crossencoder",
    epochs=2,
    data__train_fraction=0.1,
    log__steps=2,  # the step at which a run is stopped below is between two rows
    checkpoint__steps=100,
    optimizer__rate=1e-3,
  )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """The folder of a run that nobody disturbed."""
  folder = tmp_path_factory.mktemp("whole")
  train_and_evaluate(config(), folder)
  return folder


def stop_and_go_on(folder, whole, monkeypatch, owner, name, terminating):
  """Terminates a run in a function; then it ends as `whole` did. Returns what was left between."""
  with monkeypatch.context() as patch:
    patch.setattr(owner, name, terminating)
    with pytest.raises(preemption.Preempted):
      train_and_evaluate(config(), folder)
  latest = (folder / "checkpoints" / "latest").glob("*")
  left = {path.name for path in (*latest, *folder.glob("results.json"))}
  monkeypatch.setattr(preemption._Heard, "signal", False)
  train_and_evaluate(config(), folder)
  assert tiny.differences(folder, whole) == []
  return left


def test_in_a_step(tmp_path, whole, listening, monkeypatch):
  add = loop.StepLog.add

  def add_and_terminate(window, step, *rest):
    add(window, step, *rest)
    if step == 3:
      terminate()

  left = stop_and_go_on(tmp_path, whole, monkeypatch, loop.StepLog, "add", add_and_terminate)
  assert left == {"0", "3"}


@pytest.mark.parametrize("batch", [1, 8, 20])
def test_in_an_evaluation(tmp_path, whole, listening, monkeypatch, batch):
  """Before the first step, between epochs, at the end: the evaluation is made again, once."""
  gather, count = predict.gather, [0]

  def gather_and_terminate(step, *args):
    def counted(*inputs):
      count[0] += 1
      if count[0] == batch:
        terminate()
      return step(*inputs)

    return gather(counted, *args)

  stop_and_go_on(tmp_path, whole, monkeypatch, predict, "gather", gather_and_terminate)


def test_without_anything_to_save_it_ends_at_once(listening):
  with pytest.raises(preemption.Preempted):
    terminate()
  monkeypatch = pytest.MonkeyPatch()
  monkeypatch.setattr(preemption._Heard, "signal", False)
  with preemption.deferred():
    terminate()
    assert preemption.due()
    with pytest.raises(preemption.Preempted):
      preemption.check()
  monkeypatch.undo()
