"""SIGTERM to a single process: it saves where it is, and the same command goes on."""

import json
import os
import signal

import pytest
import tiny

from as2jax.evaluation import predict, results
from as2jax.runtime import preemption
from as2jax.training import loop
from as2jax.training.loop import train_and_evaluate


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
  assert results.read(folder)["metrics"] == results.read(whole)["metrics"]
  assert results.read(folder)["seeds"] == results.read(whole)["seeds"]
  tiny.assert_same_parameters(folder, whole)
  rows = [
    [
      {k: v for k, v in row.items() if k != "seconds_per_step"}
      for row in map(json.loads, (x / "metrics.jsonl").read_text().splitlines())
    ]
    for x in (folder, whole)
  ]
  assert rows[0] == rows[1]
  return left


def test_in_a_step(tmp_path, whole, listening, monkeypatch):
  add = loop.StepLog.add

  def add_and_terminate(window, step, *rest):
    add(window, step, *rest)
    if step == 3:
      terminate()

  left = stop_and_go_on(tmp_path, whole, monkeypatch, loop.StepLog, "add", add_and_terminate)
  assert left == {"0", "3"}


@pytest.mark.parametrize(
  "batch", [pytest.param(1, marks=pytest.mark.slow), 8, pytest.param(20, marks=pytest.mark.slow)]
)
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
