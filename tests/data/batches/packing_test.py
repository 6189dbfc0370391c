"""Packing: nothing overlaps, nothing is lost, few rows are used."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data.batches.samplers import pack


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(40, 64))
def test_units_lie_apart_within_rows(lengths, row_length):
  row, start, rows = pack(np.asarray(lengths, int), row_length)
  used = np.zeros((rows, row_length), int)
  for r, s, n in zip(row, start, lengths):
    assert s + n <= row_length
    used[r, s : s + n] += 1
  assert used.max(initial=0) <= 1 and used.sum() == sum(lengths)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=80))
def test_rows_stay_near_the_least(lengths):
  least = -(-sum(lengths) // 64)
  assert pack(np.asarray(lengths), 64)[2] <= 11 / 9 * max(least, sum(n > 32 for n in lengths)) + 1


@pytest.mark.parametrize("length", [0, 65])
def test_a_unit_outside_a_row_is_refused(length):
  with pytest.raises(ValueError, match=f"has {length} tokens"):
    pack(np.asarray([3, length]), 64)
