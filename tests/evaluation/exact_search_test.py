"""Exact search: equal to numpy's ranking of the full matrix, ties, devices and blocks included."""

import jax
import numpy as np
import pytest

from as2jax.evaluation import exact_search
from as2jax.evaluation.exact_search import NONE, Searcher
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError


def grid(random, rows, width=6):
  """Small whole numbers: products are exact, and ties are many."""
  return random.integers(-2, 3, (rows, width)).astype(np.float32)


def prepared(queries, pool, similarity):
  return [
    exact_search.prepared(x, similarity, side=side)
    for x, side in ((queries, "query"), (pool, "pool"))
  ]


def brute(queries, pool, k):
  """Entries by score descending, then number, and their scores."""
  scores = queries @ pool.T
  order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
  return scores, order


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("rows", [7, 16])
def test_search_is_numpys_ranking(devices, rows):
  random = np.random.default_rng(rows)
  queries, pool = grid(random, 21), grid(random, 61)
  pool[::2] *= -1  # some zeros are −0, which ties with 0
  weights = random.integers(1, 4, 61)
  right = [
    [list(random.choice(61, size=n, replace=False)) for n in random.integers(1, 4, 21)]
    for _ in range(2)
  ]
  mesh = sharding.make_mesh(devices=jax.devices()[:devices])
  actual = Searcher(mesh, k=5, rows=rows, queries=8)(queries, pool, weights=weights, right=right)
  scores, order = brute(queries, pool, 5)
  np.testing.assert_array_equal(actual.entries, order)
  np.testing.assert_array_equal(actual.scores, np.take_along_axis(scores, order, 1))
  for t, judgement in enumerate(right):
    for q, entries in enumerate(judgement):
      best = scores[q, entries].max()
      np.testing.assert_array_equal(actual.right[q, t, : len(entries)], scores[q, entries])
      assert actual.above[q, t] == weights[scores[q] > best].sum()
      assert actual.level[q, t] == weights[scores[q] == best].sum()


def test_a_pool_of_fewer_entries_than_asked_for():
  actual = Searcher(sharding.make_mesh(), k=4, rows=4, queries=2)(
    np.ones((3, 2), np.float32), np.asarray([[1, 1], [2, 2]], np.float32)
  )
  assert actual.entries.tolist() == [[1, 0, NONE, NONE]] * 3
  assert actual.scores.tolist() == [[4, 2, -np.inf, -np.inf]] * 3


def test_one_compilation_for_all_pools_and_queries():
  searcher = Searcher(sharding.make_mesh(), k=2, rows=8, queries=4)
  random = np.random.default_rng(0)
  searcher(grid(random, 3, 9), grid(random, 5, 9), right=[[[0], [1], [2]]])
  before = searcher._step._cache_size()
  searcher(grid(random, 11, 9), grid(random, 50, 9), right=[[[i] for i in range(11)]])
  assert searcher._step._cache_size() == before


def test_the_pool_is_read_block_by_block():
  class Streamed:
    shape, asked = (100, 3), []

    def __getitem__(self, rows):
      self.asked.append((rows.start, rows.stop))
      return np.arange(300, dtype=np.float32).reshape(100, 3)[rows]

  pool = Streamed()
  actual = Searcher(sharding.make_mesh(), k=1, rows=10, queries=4)(
    np.ones((6, 3), np.float32), pool
  )
  assert actual.entries.tolist() == [[99]] * 6
  assert pool.asked == [(i, i + 20) for i in range(0, 100, 20)]  # two devices of ten rows


def test_similarities_rank_as_they_say():
  random = np.random.default_rng(3)
  queries, pool = (random.normal(size=(n, 5)).astype(np.float32) for n in (9, 40))
  pool[3] = 0
  searcher = Searcher(sharding.make_mesh(), k=40, rows=40, queries=9)
  distance = -np.linalg.norm(queries[:, None] - pool[None], axis=-1)
  lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(pool, axis=1)[None]
  expected = {
    "dot": queries @ pool.T,
    "euclidean": distance,
    "cosine": queries @ pool.T / np.where(lengths > 0, lengths, 1),
  }
  for similarity, scores in expected.items():
    actual = searcher(*prepared(queries, pool, similarity))
    np.testing.assert_array_equal(actual.entries, np.argsort(-scores, axis=1, kind="stable"))
    np.testing.assert_allclose(
      exact_search.reported(actual, queries, pool, similarity),
      np.take_along_axis(scores, actual.entries, 1),
      atol=1e-5,
    )


def test_a_distance_is_reported_without_cancellation():
  """Far from the origin, products of float32 cannot tell how near two vectors are."""
  pool = np.full((8, 4), 300, np.float32)
  pool[:6, 0] += np.float32([0, 0, 0.001, 0.01, 0.5, 1])
  queries = pool[:1]
  searcher = Searcher(sharding.make_mesh(), k=8, rows=8, queries=1)
  actual = searcher(*prepared(queries, pool, "euclidean"))
  (scores,) = exact_search.reported(actual, queries, pool, "euclidean")
  assert scores.dtype == np.float32 and (np.diff(scores) <= 0).all()
  np.testing.assert_array_equal(np.diff(scores) == 0, np.diff(actual.scores[0]) == 0)
  place = {entry: score for entry, score in zip(actual.entries[0].tolist(), scores.tolist())}
  assert place[5] == pytest.approx(-1, abs=1e-4) and place[4] == pytest.approx(-0.5, abs=1e-4)


def test_bad_input_is_named():
  for value in (np.nan, 3e19):  # finite itself, but its products are not
    with pytest.raises(InputError, match="query vector 2 is not finite, or too long"):
      exact_search.prepared(np.float32([[1, 1], [1, value]]), "dot", side="query")
