"""CASSIE's layers: points and relevance by loops, transport as POT has it, graphs; its step is PyTorch's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
from tiny_cassie import FIELDS, batch, case

from as2jax.layers import alignment
from as2jax.layers.alignment import Aligner, marginal, points
from as2jax.models.cassie import EdgeWeights, GraphConvolution, sentence_graphs

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
  for relevance in ("plan_over_mass", "nearest"):
    actual = align(aligner(relevance=relevance), x, content).selected
    assert np.any(actual != plain.selected)
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


distances = jax.jit(alignment.distances)
transport_cost = jax.jit(alignment.transport_cost, static_argnums=2)
relevant_context = jax.jit(alignment.relevant_context)


def problem(p=(), n=5, m=12, d=8, dtype=jnp.float32):
  """Points, and frequencies of words as marginals: a few large, many small, some zero."""
  rng = np.random.default_rng(0)
  x, y = (jnp.asarray(rng.normal(size=(*p, k, d)), dtype) for k in (n, m))

  def weights(k):
    w = np.ceil(np.exp(rng.normal(0, 1.5, (*p, k))))
    w[..., 1] = 0
    return marginal(jnp.asarray(w, dtype))

  return x, y, weights(n), weights(m)


plan = functools.partial(
  jax.jit(alignment.transport_plan, static_argnames=("epsilon", "relative", "iterations")),
  epsilon=0.1,
  relative=True,
  iterations=50,
)


@functools.partial(jax.jit, static_argnames=("gradient", "iterations", "epsilon", "relative"))
def gradient_of_distance(cost, a, b, gradient, epsilon=0.1, relative=True, iterations=50):
  def total(cost):
    actual = plan(cost, a, b, epsilon=epsilon, relative=relative, iterations=iterations)
    return transport_cost(cost, actual, gradient).sum()

  return jax.grad(total)(cost)


def support(cost, a, b):
  """The problem without its points of weight 0, float64, marginals that add up to 1 exactly."""
  cost, a, b = (np.asarray(z, np.float64) for z in (cost, a, b))
  i, j = a > 0, b > 0
  return cost[np.ix_(i, j)], a[i] / a.sum(), b[j] / b.sum(), np.ix_(i, j)


@pytest.mark.parametrize("epsilon", [0.05, 0.1, 0.5])
def test_plans_are_pots(epsilon):
  x, y, a, b = problem((2, 3))
  cost = distances(x, y)
  actual = np.asarray(plan(cost, a, b, epsilon=epsilon, iterations=200))
  np.testing.assert_allclose(actual.sum(-1), a, atol=2e-6)
  np.testing.assert_allclose(actual.sum(-2), b, atol=1e-5)
  for k in np.ndindex(2, 3):
    c, left, right, where = support(cost[k], a[k], b[k])
    theirs = ot.sinkhorn(
      left, right, c, epsilon * c.mean(), method="sinkhorn_log", numItermax=5000, stopThr=1e-12
    )
    np.testing.assert_allclose(actual[k][where], theirs, atol=1e-5)
    assert actual[k].sum() == pytest.approx(theirs.sum(), abs=1e-5)  # nothing outside


@pytest.mark.parametrize("relative", [True, False])
def test_unrolled_gradients_are_those_of_finite_differences(relative):
  with jax.enable_x64(True):
    x, y, a, b = problem(dtype=jnp.float64)
    cost = distances(x, y)
    distance = jax.jit(
      lambda c: transport_cost(c, plan(c, a, b, relative=relative, iterations=10), "unrolled")
    )
    actual = np.asarray(
      gradient_of_distance(cost, a, b, "unrolled", relative=relative, iterations=10)
    )
    step, unit = 1e-5, np.eye(cost.size).reshape(*cost.shape, *cost.shape)
    for at in ((0, 0), (2, 5), (4, 11), (1, 1), (0, 1)):  # the last two have a weight of 0
      moved = lambda by, at=at: distance(np.asarray(cost) + by * unit[at])
      expected = (moved(step) - moved(-step)) / (2 * step)
      np.testing.assert_allclose(actual[at], expected, rtol=1e-6, atol=1e-9)
    assert np.abs(actual).max() > 0.05
    single = [z.astype(jnp.float32) for z in (cost, a, b)]
  np.testing.assert_allclose(
    gradient_of_distance(*single, "unrolled", relative=relative, iterations=10), actual, atol=2e-5
  )


def test_the_envelope_is_exact_for_the_entropic_objective():
  """With π held constant: the gradient of ⟨D, π⟩ + ε KL(π | a bᵀ), at a fixed ε."""
  with jax.enable_x64(True):
    x, y, a, b = problem(dtype=jnp.float64)
    cost = distances(x, y)
    settings = {"epsilon": 0.4, "relative": False, "iterations": 300}

    @jax.jit
    def objective(cost):
      actual = plan(cost, a, b, **settings)
      ratio = jnp.where(actual > 0, actual, 1) / jnp.where(actual > 0, a[:, None] * b[None], 1)
      return transport_cost(cost, actual, "unrolled") + 0.4 * jnp.sum(actual * jnp.log(ratio))

    envelope = np.asarray(gradient_of_distance(cost, a, b, "envelope", **settings))
    step, unit = 1e-5, np.eye(cost.size).reshape(*cost.shape, *cost.shape)
    for at in ((0, 0), (2, 5), (4, 11)):
      moved = lambda by, at=at: objective(np.asarray(cost) + by * unit[at])
      np.testing.assert_allclose(envelope[at], (moved(step) - moved(-step)) / (2 * step), rtol=1e-5)


@pytest.mark.parametrize("gradient", alignment.GRADIENTS)
def test_points_of_weight_zero_change_nothing(gradient):
  x, y, a, b = map(np.asarray, problem((3,)))
  far = lambda z, by: np.concatenate([z, np.full_like(z[:, :4], by)], axis=1)
  none = lambda z: np.pad(z, ((0, 0), (0, 4)))
  args = (distances(x, y), a, b)
  wide = (distances(far(x, 1e6), far(y, -1e6)), none(a), none(b))
  actual = np.asarray(plan(*wide))
  np.testing.assert_allclose(actual[:, :5, :12], plan(*args), atol=1e-6)
  assert not np.any(actual[:, 5:]) and not np.any(actual[..., 12:])
  actual = np.asarray(gradient_of_distance(*wide, gradient))
  np.testing.assert_allclose(actual[:, :5, :12], gradient_of_distance(*args, gradient), atol=1e-5)
  assert not np.any(actual[:, 5:]) and not np.any(actual[:, :, 12:])


@pytest.mark.parametrize("gradient", alignment.GRADIENTS)
@pytest.mark.parametrize("side", ["question", "sentence"])
def test_an_empty_side_gives_no_plan_and_finite_gradients(gradient, side):
  x, y, a, b = problem((2,))
  a, b = (a.at[0].set(0), b) if side == "question" else (a, b.at[0].set(0))
  cost = distances(x, y)
  actual = np.asarray(plan(cost, a, b))
  assert not np.any(actual[0]) and actual[1].sum() == pytest.approx(1, abs=1e-5)
  assert np.asarray(transport_cost(cost, actual, gradient))[0] == 0
  assert not np.any(np.asarray(relevant_context(actual, a, b))[0])
  gradient = np.asarray(gradient_of_distance(cost, a, b, gradient))
  assert np.isfinite(gradient).all() and not np.any(gradient[0]) and np.any(gradient[1])


def test_distances_keep_their_digits_and_their_gradient():
  """Points 1e-3 apart at a distance of 20 from the origin, and a point that coincides."""
  rng = np.random.default_rng(0)
  x = 7 + rng.normal(size=(2, 3, 8))
  y = np.concatenate(
    [x[:, :1] + 1e-3 * rng.normal(size=(2, 1, 8)), x[:, 1:2], rng.normal(size=(2, 2, 8))], axis=1
  )
  x, y = (jnp.asarray(z, jnp.float32) for z in (x, y))
  difference = np.asarray(x, np.float64)[:, :, None] - np.asarray(y, np.float64)[:, None]
  expected = np.linalg.norm(difference, axis=-1)
  np.testing.assert_allclose(distances(x, y), expected, rtol=1e-6)
  assert not np.asarray(distances(x, y))[:, 1, 1].any()
  weights = rng.normal(size=expected.shape).astype(np.float32)
  slope = jax.jit(jax.grad(lambda x, y: (distances(x, y) * weights).sum(), (0, 1)))
  actual = jax.tree.map(np.asarray, slope(x, y))
  unit = difference / np.where(expected > 0, expected, 1)[..., None] * weights[..., None]
  np.testing.assert_allclose(actual[0], unit.sum(2), atol=2e-2)  # x is rounded: 1e-6 / 1e-3
  np.testing.assert_allclose(actual[1], -unit.sum(1), atol=2e-2)
  np.testing.assert_allclose(actual[0][:, 2], unit.sum(2)[:, 2], atol=1e-5)


def test_relevant_context_is_a_set_of_positions():
  actual = jnp.asarray(
    [
      [0.1, 0.3, 0.3, 0.0, 0.0],  # tie: the first
      [0.0, 0.2, 0.1, 0.0, 0.0],  # the same word again
      [0.0, 0.0, 0.0, 0.4, 0.0],
      [0.0, 0.0, 0.0, 0.0, 0.0],
    ]
  )  # padding: chooses nothing
  a, b = jnp.asarray([0.4, 0.3, 0.3, 0]), jnp.asarray([0.2, 0.3, 0.2, 0.3, 0])
  assert relevant_context(actual, a, b).tolist() == [False, True, False, True, False]
  assert relevant_context(jnp.zeros((1, 2)), jnp.ones(1), jnp.asarray([0, 1.0])).tolist() == [
    False,
    True,
  ]  # a row that underflowed never chooses padding


S, E, K, D, HIDDEN = 2, 3, 4, 6, 5
WEIGHTS, CONVOLUTION = EdgeWeights(HIDDEN), GraphConvolution()


def content():
  rng = np.random.default_rng(0)
  nodes = jnp.asarray(rng.normal(size=(S, E, K, D)), jnp.float32)
  distance = jnp.asarray(rng.uniform(1, 5, (S, E, K)), jnp.float32)
  present = np.ones((S, E, K), bool)
  present[0, 0, 2] = present[1, 1, :2] = present[1, 2] = False  # the last graph has no node
  return nodes, distance, jnp.asarray(present)


def parameters():
  graph = sentence_graphs(*content()[::2])
  draw = lambda shapes, seed: jax.tree.map(
    lambda x: jnp.asarray(np.random.default_rng(seed).normal(size=x.shape), jnp.float32), shapes
  )
  distance = content()[1].reshape(S, -1)
  return (
    draw(WEIGHTS.init(jax.random.key(0), graph, distance), 1),
    draw(CONVOLUTION.init(jax.random.key(0), graph), 2),
  )


def test_a_sigmoid_weighs_each_edge_alone():
  nodes, distance, present = content()
  weights, _ = parameters()
  graph = sentence_graphs(nodes, present)
  alpha, actual = (
    np.asarray(layer.apply(weights, graph, distance.reshape(S, -1)).edges).reshape(S, E, K, K)
    for layer in (WEIGHTS, EdgeWeights(HIDDEN, "sigmoid"))
  )
  real = np.asarray(present)[..., :, None] & np.asarray(present)[..., None, :]
  share = np.where(real, actual, 0.5)
  odds = share / (1 - share) * real  # the softmax's, too
  np.testing.assert_allclose(odds / np.maximum(odds.sum(-1, keepdims=True), 1e-9), alpha, atol=1e-4)
  assert (actual[~real] == 0).all() and np.ptp(actual.sum(-1)[real.any(-1)]) > 1e-3


def test_self_terms_by_hand():
  nodes, distance, present = content()
  weights, convolution = parameters()
  graph = WEIGHTS.apply(weights, sentence_graphs(nodes, present), distance.reshape(S, -1))
  plain = np.asarray(CONVOLUTION.apply(convolution, graph).nodes)
  residual = GraphConvolution("residual").apply(convolution, graph).nodes
  np.testing.assert_allclose(residual, plain + np.asarray(graph.nodes), atol=1e-6)
  loop = np.random.default_rng(5).normal(size=(D, D)).astype(np.float32)
  own = {"params": {**convolution["params"], "loop": {"kernel": loop}}}
  looped = GraphConvolution("loop").apply(own, graph).nodes
  w, b = (np.asarray(x) for x in (convolution["params"]["map"]["kernel"], own["params"]["bias"]))
  alpha = np.asarray(graph.edges).reshape(S, E, K, K)
  sent = np.einsum("seij,sejd->seid", alpha, (np.asarray(graph.nodes) @ w).reshape(S, E, K, D))
  expected = np.maximum(sent.reshape(S, -1, D) + b + np.asarray(graph.nodes) @ loop, 0)
  np.testing.assert_allclose(looped, expected, rtol=1e-4, atol=1e-4)
