from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data import statistics
from as2jax.data.statistics import QUANTILES, Pairs, Texts, quantiles


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60))
def test_quantiles_are_numpys(values):
  expected = np.quantile(values, QUANTILES)
  np.testing.assert_allclose(list(quantiles(Counter(values)).values()), expected, rtol=1e-12)


@pytest.mark.parametrize("held", [1, 7, 1000])
def test_repeated_texts_in_memory_or_in_a_file(monkeypatch, held):
  monkeypatch.setattr(statistics, "_HELD", held)
  pairs = Pairs()
  for at in range(0, 100, 5):  # 20 of 40 are labelled twice, 10 of them in two ways
    for i in range(at, at + 5):
      pairs.add(f"text {i % 40}", int(i == 80 + i % 40 and i < 90))
  pairs.add("text 1", -1)
  pairs.add("nobody judged it", -1)
  assert pairs.asdict() == {"duplicate_pairs": 61, "contradictory_pairs": 10}
  assert Pairs().asdict() == {"duplicate_pairs": 0, "contradictory_pairs": 0}


@pytest.mark.parametrize("held", [1, 7, 1000])
def test_shared_texts(monkeypatch, held):
  monkeypatch.setattr(statistics, "_HELD", held)
  a, b = Texts(), Texts()
  for i in range(30):
    a.add(f"{i % 20}")
    b.add(f"{i}")
  assert (len(a), len(b), a.shared(b)) == (20, 30, 20)
