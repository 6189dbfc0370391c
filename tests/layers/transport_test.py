"""Transport: POT's plans and costs, marginals, gradients, padding, no callback in the program."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest

from as2jax.layers import transport
from as2jax.layers.transport import marginal

distances = jax.jit(transport.distances)
transport_cost = jax.jit(transport.transport_cost, static_argnums=2)
relevant_context = jax.jit(transport.relevant_context)


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
  jax.jit(transport.transport_plan, static_argnames=("epsilon", "relative", "iterations")),
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


@pytest.mark.parametrize("gradient", transport.GRADIENTS)
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


@pytest.mark.parametrize("gradient", transport.GRADIENTS)
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


def test_nan_is_no_distance():
  x = jnp.asarray([[0.0, 3.0], [jnp.nan, 0.0]])
  np.testing.assert_array_equal(
    distances(x, jnp.asarray([[0.0, 3.0], [4.0, 0.0]])), [[0, 5], [np.nan, np.nan]]
  )
