from as2jax.data.statistics import SplitStatistics


def test_repeated_and_contradictory_pairs():
  statistics = SplitStatistics()
  for i in range(100):  # 20 of 40 are labelled twice, 10 of them in two ways
    statistics.add_pair(f"text {i % 40}", int(80 <= i < 90))
  statistics.add_pair("text 1", -1)
  statistics.add_pair("nobody judged it", -1)
  counts = statistics.asdict()
  assert (counts["duplicate_pairs"], counts["contradictory_pairs"]) == (61, 10)
  assert SplitStatistics().asdict()["duplicate_pairs"] == 0
