import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from as2jax.layers.relative_attention import RelativeAttention, relative_shift, sinusoids


@pytest.mark.parametrize("queries, keys", [(1, 1), (4, 4), (5, 8), (3, 12)])
def test_shift_picks_the_column_of_the_distance(queries, keys):
  scores = np.random.default_rng(0).normal(size=(2, 3, queries, queries + keys))
  actual = relative_shift(jnp.asarray(scores, jnp.float32), keys)
  assert actual.shape == (2, 3, queries, keys)
  distances = keys - np.arange(queries + keys)  # of the columns, as `sinusoids` lays them
  for i in range(queries):
    for j in range(keys):
      (column,) = np.flatnonzero(distances == keys - queries + i - j)
      np.testing.assert_array_equal(actual[..., i, j], scores[..., i, column].astype(np.float32))


def test_sinusoids_are_sines_then_cosines_of_each_distance():
  actual = np.asarray(sinusoids(3, 5, 4, -1))
  assert actual.shape == (8, 4)
  for row, distance in enumerate((5, 4, 3, 2, 1, 0, -1, -2)):
    slow = distance / 100  # 10000^(2/4)
    expected = [math.sin(distance), math.sin(slow), math.cos(distance), math.cos(slow)]
    np.testing.assert_allclose(actual[row], expected, atol=1e-6)


def test_clamped_distances_stand_still():
  actual, free = np.asarray(sinusoids(4, 4, 6, 2)), np.asarray(sinusoids(4, 4, 6, 0))
  np.testing.assert_array_equal(actual[2:7], free[2:7])  # distances 2 … -2
  np.testing.assert_array_equal(actual[:2], np.stack([free[2]] * 2))
  np.testing.assert_array_equal(actual[7], free[6])


def test_memory_holds_no_vector_for_each_pair():
  attention = RelativeAttention(2, 0.0, jnp.float32, None)
  x, mask = jnp.zeros((1, 64, 256)), jnp.ones((1, 1, 64, 64), bool)
  call = functools.partial(attention.apply, train=False)
  arguments = (x, x, mask, mask, sinusoids(64, 64, 256, -1))
  params = jax.eval_shape(lambda: attention.init(jax.random.key(0), *arguments, train=False))
  used = jax.jit(call).lower(params, *arguments).compile().memory_analysis().temp_size_in_bytes
  assert used < 4 * 64 * 64 * 256  # float32 [64, 64, 2, 128]
