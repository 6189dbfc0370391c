from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data.statistics import QUANTILES, SplitStatistics, quantiles


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60))
def test_quantiles_are_numpys(values):
  expected = np.quantile(values, QUANTILES)
  np.testing.assert_allclose(list(quantiles(Counter(values)).values()), expected, rtol=1e-12)


def test_repeated_and_contradictory_pairs():
  statistics = SplitStatistics()
  for i in range(100):  # 20 of 40 are labelled twice, 10 of them in two ways
    statistics.add_pair(f"text {i % 40}", int(80 <= i < 90))
  statistics.add_pair("text 1", -1)
  statistics.add_pair("nobody judged it", -1)
  counts = statistics.asdict()
  assert (counts["duplicate_pairs"], counts["contradictory_pairs"]) == (61, 10)
  assert SplitStatistics().asdict()["duplicate_pairs"] == 0
