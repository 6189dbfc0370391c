import functools

import jax
import jax.numpy as jnp
import numpy as np

from as2jax.layers.relative_attention import RelativeAttention, sinusoids


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
