"""Similarity grids: numbers by hand, safe gradients; convolution as jax has it, pooling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from as2jax.layers import cpu as cropped
from as2jax.layers import similarity
from as2jax.layers.cpu import cropped_convolution
from as2jax.layers.similarity import SimilarityGrid, average_pool, narrow_convolution, rectangle
from as2jax.runtime.errors import InputError

X = jnp.asarray([[[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]]])
Y = jnp.asarray([[[3.0, 4.0], [0.0, 0.0]]])


def test_numbers_by_hand():
  np.testing.assert_allclose(
    similarity.euclidean(X, Y)[0],
    [[1, 1 / 6], [1 / 6, 1], [1 / (1 + np.sqrt(20)), 1 / 2]],
    rtol=1e-6,
  )
  np.testing.assert_allclose(similarity.cosine(X, Y)[0], [[1, 0], [0, 0], [0.6, 0]], rtol=1e-6)
  grid = SimilarityGrid("metric", 2, 0.0)
  u = jnp.asarray([[[1.0, 2.0], [0.0, 1.0]], [[0.0, 0.0], [1.0, 0.0]]])
  b = jnp.arange(12.0).reshape(2, 3, 2)
  actual = grid.apply({"params": {"U": u, "B": b}}, X, Y, jnp.ones((1, 3, 2)))
  # x·U_k y: of (3, 4) with itself 3·3 + 2·3·4 + 4·4 = 49, and 4·3 = 12
  np.testing.assert_allclose(
    actual[:, 0], [[[49, 1], [2, 3], [4 + 11, 5]], [[6 + 12, 7], [8, 9], [10, 11]]], rtol=1e-6
  )


@pytest.mark.parametrize("kind,modes", [("euclidean", 1), ("cosine", 1), ("metric", 3)])
def test_gradients_are_finite_at_equal_and_zero_vectors_and_stop_at_the_mask(kind, modes):
  grid = SimilarityGrid(kind, modes, 0.1)
  mask = jnp.asarray([[[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]])
  variables = jax.jit(grid.init)(jax.random.key(0), X, Y, mask)
  loss = lambda v, x, y: jnp.sum(jnp.sin(3 * grid.apply(v, x, y, mask)))
  gradients = jax.tree.map(np.asarray, jax.jit(jax.grad(loss, (0, 1, 2)))(variables, X, Y))
  assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradients))
  assert not np.any(gradients[1][0, 2])
  actual = np.asarray(jax.jit(grid.apply)(variables, X, Y, mask))
  assert actual.shape == (modes, 1, 3, 2) and not np.any(actual[:, 0, 2])


def test_a_cosine_of_two_modes_is_refused():
  with pytest.raises(InputError, match="model.modes = 2"):
    SimilarityGrid("cosine", 2, 0.1).init(jax.random.key(0), X, Y, jnp.ones((1, 3, 2)))


@pytest.mark.parametrize("shape,size", [((2, 3, 7, 9), 5), ((1, 2, 5, 5), 5), ((3, 1, 4, 6), 1)])
def test_the_convolution_is_jaxs(shape, size):
  x = jax.random.normal(jax.random.key(0), shape)
  kernel = jax.random.normal(jax.random.key(1), (size, size, shape[0], 4))

  def theirs(x, kernel):
    return jax.lax.conv_general_dilated(
      x, kernel, (1, 1), "VALID", dimension_numbers=("CNHW", "HWIO", "CNHW"), precision="highest"
    )

  ours = jax.jit(lambda x, kernel: narrow_convolution(x, kernel, "highest"))
  np.testing.assert_allclose(ours(x, kernel), theirs(x, kernel), atol=1e-5)
  loss = lambda f: jax.jit(jax.grad(lambda x, k: jnp.sum(jnp.sin(f(x, k))), (0, 1)))(x, kernel)
  for a, b in zip(loss(ours), loss(theirs)):
    np.testing.assert_allclose(a, b, atol=2e-5)


def test_pooling_averages_tiles_and_drops_what_is_left_over():
  x = jnp.arange(15.0).reshape(1, 1, 3, 5)
  np.testing.assert_array_equal(average_pool(x, 2)[0, 0], [[3, 5]])
  np.testing.assert_array_equal(average_pool(x, 1), x)
  with pytest.raises(InputError, match=r"2×2 tiles do not fit into a grid of \(1, 5\)"):
    average_pool(x[:, :, :1], 2)


SHAPE, KERNEL = (2, 8, 9, 12), (3, 3, 2, 4)
# By size, as the model has them: each group of two crops to another size.
ROWS = jnp.asarray([1, 2, 3, 4, 0, 6, 9, 2])
COLUMNS = jnp.asarray([1, 2, 4, 4, 6, 7, 3, 12])


def inputs(key=0):
  keys = jax.random.split(jax.random.key(key), 3)
  x = jax.random.normal(keys[0], SHAPE) * rectangle(ROWS, COLUMNS, SHAPE[2:])[None]
  out = (KERNEL[-1], SHAPE[1], SHAPE[2] - 2, SHAPE[3] - 2)
  weights = jax.random.normal(keys[2], out) * rectangle(ROWS, COLUMNS, out[2:])[None]
  return x, jax.random.normal(keys[1], KERNEL), weights


def with_gradients(convolve, x, kernel, weights):
  """The convolution, and the gradients of its weighted sum within the real pairs."""
  value = lambda x, kernel: jnp.sum(convolve(x, kernel) * weights)
  dx, dk = jax.grad(value, (0, 1))(x, kernel)
  return convolve(x, kernel), dx * rectangle(ROWS, COLUMNS, SHAPE[2:])[None], dk


def ours(x, kernel):
  return cropped_convolution(x, kernel, ROWS, COLUMNS, "highest")


def plain(x, kernel):
  return narrow_convolution(x, kernel, "highest")


def assert_same(actual, expected):
  for a, b in zip(actual, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_it_is_the_plain_convolution_with_its_gradients():
  arguments = inputs()
  expected = jax.jit(lambda *a: with_gradients(plain, *a))(*arguments)
  assert_same(jax.jit(lambda *a: with_gradients(ours, *a))(*arguments), expected)


def test_mapped_over_seeds_too():
  arguments = [jnp.stack(pair) for pair in zip(inputs(0), inputs(1))]
  mapped = jax.jit(jax.vmap(lambda *a: with_gradients(ours, *a)))
  assert_same(mapped(*arguments), jax.vmap(lambda *a: with_gradients(plain, *a))(*arguments))
  assert "stablehlo.while" not in mapped.lower(*arguments).as_text()  # the loop over groups


@pytest.mark.parametrize("platform,chooses", [("cpu", True), ("tpu", False), ("cuda", False)])
def test_sizes_are_chosen_on_cpu_alone(platform, chooses):
  traced = jax.jit(lambda *a: with_gradients(ours, *a)).trace(*inputs())
  text = traced.lower(lowering_platforms=(platform,)).as_text()
  assert ("stablehlo.while" in text) == chooses  # the loop over groups


def test_a_group_is_cropped(monkeypatch):
  """To five rows, where no other size is offered: only windows of more than three are missing."""
  x, kernel, _ = inputs()
  expected = jax.jit(plain)(x, kernel)
  monkeypatch.setattr(cropped, "ROWS", (0.5,))
  actual = jax.jit(lambda x, kernel: ours(x, kernel))(x, kernel)
  wrong = np.any(~np.isclose(actual, expected, atol=1e-5), axis=(0, 2, 3))
  assert list(np.flatnonzero(wrong)) == [3, 5, 6]
