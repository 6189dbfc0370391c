"""The trace of `--profile`: which steps it holds, and where it goes."""

import contextlib
import gzip
import json

import jax
import jax.numpy as jnp
import pytest
import tiny

from as2jax.inference import modes
from as2jax.runtime import preemption, profiling


@pytest.fixture
def traced(monkeypatch, caplog):
  """What is logged in place of tracing."""
  monkeypatch.setattr(jax.profiler, "start_trace", lambda folder: None)
  monkeypatch.setattr(jax.profiler, "stop_trace", lambda: None)
  caplog.set_level("INFO", "as2jax.runtime.profiling")
  lines = lambda: [r.getMessage()[:30] for r in caplog.records if "trac" in r.getMessage()]
  return lines


def test_so_many_steps_after_the_first_are_traced(traced, tmp_path):
  profiling.want(2)
  trace = profiling.Trace(tmp_path)
  for step in range(31, 51):  # a run that went on
    trace.after_step(step, None)
  first, last = traced()
  assert first.startswith("tracing 2 steps from step 36") and last.startswith("traced to step 37: ")
  again = profiling.Trace(tmp_path)  # another run of the same process was asked for nothing
  for step in range(20):
    again.after_step(step, None)
  assert len(traced()) == 2
  profiling.want(3)
  short = profiling.Trace(tmp_path)
  short.after_step(1, None)
  short.close(1, None)
  for step in range(9):  # of another seed
    short.after_step(step, None)
  assert traced()[2:] == ["--profile: the training ended "]


@pytest.mark.parametrize("stopped", [False, True])
def test_the_loop_traces_steps_of_training_into_the_runs_folder(tmp_path, monkeypatch, stopped):
  monkeypatch.setattr(profiling, "WARM_UP", 1)
  profiling.want(99 if stopped else 1)
  due = iter([False, False, stopped])
  monkeypatch.setattr(preemption, "due", lambda: next(due, False))
  with pytest.raises(preemption.Preempted) if stopped else contextlib.nullcontext():
    modes.run(tiny.config("triplet", "grouped"), str(tmp_path))
  (file,) = (tmp_path / "profile").glob("plugins/profile/*/*.trace.json.gz")
  assert json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
  assert list(file.parent.glob("*.xplane.pb"))
  trace = profiling.Trace(tmp_path)
  trace.close(3, jnp.ones(2))  # nothing was asked for
