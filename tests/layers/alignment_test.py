"""Points of units against a loop over words, relevance by hand; CASSIE's step is PyTorch's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_cassie import FIELDS, batch, case

from as2jax.layers.alignment import Aligner, points

SIZES = (3, 4, 4, 4)
# A sentence over the limit, none at all, no question, a second row and shard, spare slots.
CASES = (case(0, (3, 6, 2, 3)), case(1, (5, 4, 0, 2)), case(2, (0, 4, 1, 1)), case(3))


def example_content():
  return batch([[CASES[0], CASES[1]], [CASES[2]]], [[CASES[3]]], spare=2)


def hidden(content, width=6):
  shape = (*content.tokens.ids.shape, width)
  return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


def aligner(**changes):
  names = Aligner.__dataclass_fields__
  fields = {k: v for k, v in FIELDS.items() if k in names}
  return Aligner(**fields | {"question_words": SIZES[0], "sentence_words": SIZES[1]} | changes)


@functools.partial(jax.jit, static_argnums=(0, 3))
def align(how, hidden, content, sentences=3):
  return how(hidden, content.units, content.words, sentences)


def by_hand(hidden, content, filtered):
  """Vectors and word numbers of the points, word by word."""
  words = jax.tree.map(np.asarray, content.words)
  units = jax.tree.map(np.asarray, content.units)
  s, u = units.length.shape
  vectors, number = np.zeros((s, u, sum(SIZES), hidden.shape[-1])), np.full((s, u, sum(SIZES)), -1)
  taken = {}
  for at, w in np.ndindex(*words.length.shape):
    if not words.length[at, w] or (filtered and words.inputs["stop_words"][at, w]):
      continue
    unit, role = words.unit[at, w], words.role[at, w]
    rank = taken[at, unit, role] = taken.get((at, unit, role), -1) + 1
    if rank < SIZES[role]:
      point = sum(SIZES[:role]) + rank
      start = units.start[at, unit] + words.start[at, w]
      pieces = np.asarray(hidden)[at, units.row[at, unit], start : start + words.length[at, w]]
      vectors[at, unit, point], number[at, unit, point] = pieces.mean(0), w
  return vectors, number


@pytest.mark.parametrize("filtered", [True, False])
def test_points_are_means_of_pieces(filtered):
  content = example_content()
  x = hidden(content)
  actual, number = jax.jit(points, static_argnums=3, static_argnames="filtered")(
    x, content.units, content.words, SIZES, filtered=filtered
  )
  vectors, expected = by_hand(x, content, filtered)
  np.testing.assert_array_equal(number, expected)
  np.testing.assert_allclose(actual, vectors, atol=1e-6)
  counts = (expected >= 0).sum((0, 1))
  assert counts.min() < counts.max() and (expected[0, 1, 7:11] < 0).all()


def test_no_alignment_is_the_mean_of_all_words():
  content = example_content()
  x = hidden(content)
  actual = align(aligner(alignment="mean", marginals="uniform"), x, content)
  vectors, number = by_hand(x, content, filtered=True)
  real = number[0, 0, 3:7] >= 0
  np.testing.assert_allclose(
    actual.representation[0, 0, 0], vectors[0, 0, 3:7][real].mean(0), atol=1e-6
  )
  question = number[0, 0, :3] >= 0
  cost = np.linalg.norm(
    vectors[0, 0, :3][question][:, None] - vectors[0, 0, 3:7][real][None], axis=-1
  )
  np.testing.assert_allclose(actual.distance[0, 0, 0], cost.mean(), rtol=1e-5)
  assert not jnp.any(actual.selected[0, 1, 1]) and not jnp.any(actual.selected[0, 2])


def test_relevance_by_hand():
  """π over its column's mass and the smallest distance choose other words than π does."""
  content = example_content()
  x = hidden(content)
  plain = align(aligner(), x, content)
  chosen = {"plan": plain.selected}
  for relevance in ("plan_over_mass", "nearest"):
    actual = chosen[relevance] = align(aligner(relevance=relevance), x, content).selected
    plan, cost = np.asarray(plain.plan), np.asarray(plain.cost)
    mass = np.maximum(plan.sum(-2, keepdims=True), 1e-12)
    value = {"plan_over_mass": plan / mass, "nearest": -cost}[relevance]
    for at in np.ndindex(*plain.present.shape):
      i, j = (
        np.flatnonzero(np.asarray(number) >= 0)
        for number in (plain.question[at[:2]], plain.sentence[at])
      )
      best = {int(j[np.argmax(value[at][k, j])]) for k in i} if len(j) else set()
      assert set(np.flatnonzero(actual[at])) == best, (relevance, at)
  assert any(np.any(chosen["plan"] != other) for other in chosen.values())
