"""Similarity grids: numbers by hand, safe gradients; convolution as jax has it, pooling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from as2jax.layers import similarity
from as2jax.layers.similarity import SimilarityGrid, average_pool, narrow_convolution
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
