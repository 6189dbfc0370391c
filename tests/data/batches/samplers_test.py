"""Samplers: shards that are packed many at a time are those that would be made one by one."""

import numpy as np
import pytest

from as2jax.data.batches import samplers
from as2jax.data.batches.examples import ExampleTable
from as2jax.data.batches.samplers import Limits, Sampler

N = 1500


def shards(limits, units, lengths, ahead, monkeypatch):
  monkeypatch.setattr(samplers, "AHEAD", ahead)
  numbers = np.arange(N)
  members = (np.random.default_rng(1).permutation(N) % units).astype(np.int32)[:, None]
  table = ExampleTable(members, np.zeros((N, 1)), numbers // 7, numbers, numbers % 7)
  sampler = Sampler("paper", table, lengths, limits)
  return list(sampler.epoch(sampler.blocks(), 0, 3))


@pytest.mark.parametrize(
  "limits, units",
  [
    (Limits(20, 20, 8, 128), N),  # some do not fit, and wait for another
    (Limits(20, 20, 6, 128), N),  # most do not
    (Limits(20, 20, 20, 128), N),  # all do
    (Limits(20, 20, 8, 128), N // 2),  # units that are in a shard twice
    (Limits(7, 7, 7, 128, packed=False), N),
  ],
)
def test_packing_ahead_changes_no_shard(limits, units, monkeypatch):
  lengths = np.random.default_rng(0).integers(3, 60, N)
  each = shards(limits, units, lengths, 1, monkeypatch)
  together = shards(limits, units, lengths, 64, monkeypatch)
  assert len(each) == len(together) >= N // 20
  for one, other in zip(each, together, strict=True):
    assert one.rows == other.rows <= limits.rows
    for name in ("examples", "units", "row", "start"):
      actual, expected = getattr(other, name), getattr(one, name)
      assert actual.dtype == expected.dtype
      np.testing.assert_array_equal(actual, expected)
