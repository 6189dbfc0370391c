"""Metrics over a pool: equal to those of every order of the tied entries, and to `metrics`."""

import itertools

import numpy as np
import pytest

from as2jax.data.record import Passage, Pool, Query
from as2jax.evaluation import metrics, retrieval_metrics
from as2jax.evaluation.retrieval_metrics import Standing


def test_ties_are_exact_expectations_between_the_worst_and_the_best_order():
  cases = list(itertools.product(range(7), range(6), range(1, 4)))
  counts = Standing(*map(np.asarray, zip(*cases)))
  actual = retrieval_metrics.per_query(counts)
  worst, best = (retrieval_metrics.per_query(counts, ties=o) for o in retrieval_metrics.ORDERS)
  for i, (above, wrong, right) in enumerate(cases):
    orders = itertools.combinations(range(wrong + right), right)
    rank = np.asarray([above + places[0] + 1 for places in orders])
    for name, values in (("mrr", 1 / rank), ("r@1", rank <= 1), ("r@5", rank <= 5)):
      assert actual[name][i] == pytest.approx(values.mean(), abs=1e-12)
      assert (worst[name][i], best[name][i]) == (values.min(), values.max())


@pytest.mark.parametrize("ties", retrieval_metrics.TIES)
def test_equal_to_the_metrics_of_whole_rankings(ties):
  random = np.random.default_rng(0)
  scores = random.integers(0, 9, (300, 40)).astype(np.float32)
  right = [random.choice(40, size=random.integers(1, 3), replace=False) for _ in scores]
  standings = Standing(
    *np.asarray([retrieval_metrics.standing(s, r) for s, r in zip(scores, right)]).T
  )
  actual = retrieval_metrics.per_query(standings, ties=ties)
  labels = [np.isin(np.arange(40), r).astype(int) for r in right]
  expected = metrics.per_question(list(scores), labels, ties=ties)
  np.testing.assert_allclose(actual["mrr"], expected["mrr"], atol=1e-12)
  np.testing.assert_allclose(actual["r@1"], expected["p@1"], atol=1e-12)
  alone = np.asarray([len(r) == 1 for r in right])
  np.testing.assert_allclose(actual["r@5"][alone], expected["r@5"][alone], atol=1e-12)


def pool():
  passages = [Passage(f"p{i}", text) for i, text in enumerate(("one", "two", "one", "three"))]
  queries = [
    Query("a", "A?", ("p0", "p3"), (2, 1)),
    Query("b", "B?", ("p0",), (1,)),
    Query("c", "C?", ("p1",), (1,)),
  ]
  return Pool(tuple(passages), tuple(queries))


def test_a_sentence_of_the_same_text_is_right():
  assert retrieval_metrics.right_entries(pool(), "gold") == [[0, 2], [0, 2], [1]]
  assert retrieval_metrics.right_entries(pool(), "any") == [[0, 2, 3], [0, 2], [1]]
  assert retrieval_metrics.asked(pool()).tolist() == [2, 2, 1]


def test_spread_of_the_queries_of_one_answer():
  # a and b lie at a right angle: ‖a − b‖² = 2, whatever their lengths.
  actual = retrieval_metrics.spread(np.asarray([[3.0, 0], [0, 2], [5, 0]]), pool())
  assert actual["sse"] == pytest.approx(2) and actual["sse_answers"] == 1
  # Of the pairs a-b, b-c, a-c two are at a right angle, one is at distance 0.
  assert actual["sse_random"] == pytest.approx(4 / 3, abs=0.1)
  assert actual["sse_relative"] == pytest.approx(actual["sse"] / actual["sse_random"])
  random = np.random.default_rng(0).normal(size=(3, 4))
  unit = random / np.linalg.norm(random, axis=1, keepdims=True)
  actual = retrieval_metrics.spread(random, pool())
  assert actual["sse"] == pytest.approx(((unit[0] - unit[1]) ** 2).sum())
  alone = Pool(pool().passages, pool().queries[1:])
  assert retrieval_metrics.spread(random[1:], alone) == {}
