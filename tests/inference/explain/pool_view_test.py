"""The questions of one answer of a pool, and their vectors in two dimensions."""

import numpy as np
import pytest

from as2jax.data.datasets.pool import Pool
from as2jax.data.record import Passage, Query
from as2jax.inference.explain import pool_view
from as2jax.runtime.errors import InputError


def pool():
  passages = tuple(Passage(f"p{i}", f"sentence number {i}") for i in range(4))
  queries = [
    Query("a", "which one ?", ("p1",), (1,)),
    Query("b", "which other ?", ("p1",), (1,)),
    Query("c", "what ?", ("p2",), (1,)),
  ]
  return Pool(passages, tuple(queries))


def test_the_questions_of_one_answer():
  assert pool_view.questions_of(pool(), "most") == (
    "sentence number 1",
    ["which one ?", "which other ?"],
  )
  with pytest.raises(InputError, match="1 questions have it"):
    pool_view.questions_of(pool(), "p2")
  with pytest.raises(InputError, match="no such passage .the first is p0"):
    pool_view.questions_of(pool(), "zebra")


def test_projection_keeps_what_two_directions_hold():
  random = np.random.default_rng(0)
  plane = random.normal(size=(2, 7))
  vectors = random.normal(size=(9, 2)) @ plane
  unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
  points = pool_view.projected(vectors)
  distances = lambda x: np.square(x[:, None] - x[None]).sum(-1)
  np.testing.assert_allclose(distances(points), distances(unit), atol=1e-9)
  np.testing.assert_allclose(
    pool_view.closeness(vectors), distances(unit)[np.triu_indices(9, 1)].mean()
  )
  assert pool_view.projected(np.ones((3, 1))).shape == (3, 2)
