"""The steps of an epoch in arrays: what was put in comes out, in bytes and not in objects."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data.batches.batcher import Steps
from as2jax.data.batches.samplers import Shard

integers = lambda values: np.asarray(values, np.int32)


def shard_of(rng, examples, units):
  draw = lambda n: integers(rng.integers(0, 100, n))
  return Shard(draw(examples), draw(units), draw(units), draw(units), int(rng.integers(1, 9)))


def same(one, other):
  if one is None or other is None:
    return one is other
  fields = ("examples", "units", "row", "start")
  return one.rows == other.rows and all(
    np.array_equal(getattr(one, name), getattr(other, name)) for name in fields
  )


@given(st.integers(0, 12), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**16))
def test_steps_are_those_of_nested_tuples(count, shards, accumulate, seed):
  rng = np.random.default_rng(seed)
  content = [shard_of(rng, int(rng.integers(1, 4)), int(rng.integers(1, 5))) for _ in range(count)]
  steps = Steps(iter(content), shards, accumulate)
  # By hand: cut the shards into steps, the steps into batches, and fill up the last.
  per_step = shards * accumulate
  padded = [*content, *[None] * (-count % per_step)]
  flat = [padded[at : at + per_step] for at in range(0, len(padded), per_step)]
  expected = [[step[m : m + shards] for m in range(0, per_step, shards)] for step in flat]
  assert len(steps) == len(expected)
  for i, step in enumerate(steps):
    for got, wanted in zip(step, expected[i], strict=True):
      assert all(map(same, got, wanted))
  if expected:
    assert same(steps[-1][0][0], expected[-1][0][0])
  values = rng.integers(1, 100, 100)
  full = [[s for s in step if s is not None] for step in flat]
  assert steps.by_step(steps.rows, np.maximum).tolist() == [max(s.rows for s in f) for f in full]
  assert steps.by_step(steps.examples_of_shards(), np.add).tolist() == [
    sum(len(s.examples) for s in f) for f in full
  ]
  assert steps.of_units(values, np.add).tolist() == [int(values[s.units].sum()) for s in content]
  with pytest.raises(IndexError):
    steps[len(steps)]
