"""The trace of `--profile`: which steps it holds, and where it goes."""

import gzip
import json

import jax.numpy as jnp
import pytest
import tiny

from as2jax.inference import modes
from as2jax.runtime import profiling


@pytest.fixture
def steps(monkeypatch):
  """Notes the steps after which a trace begins and ends, in place of tracing."""
  seen = []
  for name in ("_begin", "_end"):
    monkeypatch.setattr(
      profiling.Trace, name, lambda self, step, result, name=name: seen.append((name, step))
    )
  return seen


def test_so_many_steps_after_the_first_are_traced(steps, tmp_path):
  profiling.want(2)
  trace = profiling.Trace(tmp_path)
  for step in range(31, 51):  # a run that went on
    trace.after_step(step, None)
  assert steps == [("_begin", 30 + profiling.WARM_UP), ("_end", 30 + profiling.WARM_UP + 2)]
  again = profiling.Trace(tmp_path)  # another run of the same process was asked for nothing
  for step in range(20):
    again.after_step(step, None)
  assert len(steps) == 2


def test_the_loop_traces_steps_of_training(steps, tmp_path, monkeypatch):
  monkeypatch.setattr(profiling, "WARM_UP", 1)
  profiling.want(1)
  modes.run(tiny.config("triplet", "grouped"), str(tmp_path))
  assert steps == [("_begin", 1), ("_end", 2)]


def test_a_training_that_ends_before_says_so(steps, tmp_path, caplog):
  profiling.want(3)
  trace = profiling.Trace(tmp_path)
  trace.after_step(1, None)
  trace.close(1, None)
  assert steps == [] and "ended before its step 6" in caplog.text


def test_a_trace_lies_in_the_run_s_folder(tmp_path, monkeypatch):
  monkeypatch.setattr(profiling, "WARM_UP", 1)
  profiling.want(5)
  trace = profiling.Trace(tmp_path)
  trace.after_step(1, None)
  total = jnp.arange(8.0).sum()
  trace.after_step(2, total)
  trace.close(2, total)  # the training ended with the trace under way
  (file,) = (tmp_path / "profile").glob("plugins/profile/*/*.trace.json.gz")
  assert json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
  assert list(file.parent.glob("*.xplane.pb"))
  trace.close(3, total)  # once
