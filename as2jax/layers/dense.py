"""Dense layers, and sums that XLA:CPU computes slowly when it is asked for them plainly.

XLA:CPU adds up the columns of a matrix element by element on one core, and channels hardly faster.
As a product with ones, which all cores share, the same sums take a tenth of that. On other
platforms they are plain sums.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float

WIDTH = 8  # columns of ones: a product with a single one would not be a matrix product


def column_sums(x: Float[Array, "*n d"]) -> Float[Array, " d"]:
  """Return the sums over all axes but the last, added up in float32."""
  return lax.platform_dependent(x, cpu=_by_product, default=_plainly)


def _by_product(x: Array) -> Array:
  rows = x.reshape(-1, x.shape[-1])
  ones = jnp.ones((WIDTH, rows.shape[0]), rows.dtype)
  return _product(ones, rows)[0]


def _plainly(x: Array) -> Array:
  return jnp.sum(x, axis=range(x.ndim - 1), dtype=jnp.float32)


def _product(a: Array, b: Array) -> Array:
  return lax.dot(a, b, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32)


def sum_of_squares(x: Float[Array, "..."]) -> Float[Array, ""]:
  """Return the sum of all squared elements, added up in float32."""
  squares = jnp.square(x.astype(jnp.float32))
  return lax.platform_dependent(squares, cpu=_all_by_product, default=jnp.sum)


def _all_by_product(x: Array) -> Array:
  rows = x.reshape(-1, x.shape[-1] if x.ndim else 1)
  return _product(rows, jnp.ones((rows.shape[1], WIDTH), rows.dtype))[:, 0].sum()


def norm(tree: Any) -> Float[Array, ""]:
  """Return the Euclidean norm of all arrays of a tree together, float32."""
  return jnp.sqrt(sum(map(sum_of_squares, jax.tree.leaves(tree)), jnp.zeros(())))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def spread(vector: Float[Array | np.ndarray, " d"], shape: tuple[int, ...]) -> Float[Array, "*n d"]:
  """Return `vector` for every position of an array of `shape`; the gradient is by `column_sums`."""
  return jnp.broadcast_to(vector, shape)


spread.defvjp(
  lambda vector, shape: (spread(vector, shape), None),
  lambda shape, _, gradient: (column_sums(gradient).astype(gradient.dtype),),
)


def channel_sums(x: Float[Array, "c n *m"]) -> Float[Array, " c"]:
  """Return the sums over all axes but the first, in float32; the gradient is `spread_channels`."""
  return _channel_sums(x, x.shape)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _channel_sums(x: Array, shape: tuple[int, ...]) -> Array:
  return lax.platform_dependent(x, cpu=_channels_by_product, default=_channels_plainly)


def _channels_by_product(x: Array) -> Array:
  rows = x.reshape(-1, math.prod(x.shape[2:] or x.shape[1:]))
  sums = _product(rows, jnp.ones((rows.shape[1], WIDTH), rows.dtype))[:, 0]
  return sums.reshape(x.shape[0], -1).sum(axis=1)


def _channels_plainly(x: Array) -> Array:
  return jnp.sum(x, axis=range(1, x.ndim), dtype=jnp.float32)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def spread_channels(
  vector: Float[Array | np.ndarray, " c"], shape: tuple[int, ...]
) -> Float[Array, "c n *m"]:
  """Return an array of `shape` with `vector` along its first axis; the gradient is `channel_sums`."""
  return jnp.broadcast_to(jnp.expand_dims(vector, range(1, len(shape))), shape)


_channel_sums.defvjp(
  lambda x, shape: (_channel_sums(x, shape), None),
  lambda shape, _, gradient: (spread_channels(gradient, shape),),
)
spread_channels.defvjp(
  lambda vector, shape: (spread_channels(vector, shape), None),
  lambda shape, _, gradient: (channel_sums(gradient).astype(gradient.dtype),),
)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _times(
  x: Float[Array, "*n i"], kernel: Float[Array | np.ndarray, "i o"], precision: Any
) -> Float[Array, "*n o"]:
  """Return x·kernel; on CPU the gradient of the kernel is a product of two matrices.
  Over two axes, of rows and of tokens, XLA:CPU would copy what it multiplies. (Written so for all
  platforms, and forward too, a TPU's compiler needs five times the memory for temporaries.)
  """
  return lax.dot_general(x, kernel, (((x.ndim - 1,), (0,)), ((), ())), precision=precision)


def _times_forward(x, kernel, precision):
  return _times(x, kernel, precision), (x, kernel)


def _times_backward(precision, kept, gradient):
  x, kernel = kept
  over_outputs = (((x.ndim - 1,), (1,)), ((), ()))
  by_input = lax.dot_general(gradient, kernel, over_outputs, precision=precision)
  return by_input, lax.platform_dependent(x, gradient, **_gradient_of_kernel(precision))


_times.defvjp(_times_forward, _times_backward)


def _flat(x: Array, gradient: Array, precision: Any) -> Array:
  x, gradient = (value.reshape(-1, value.shape[-1]) for value in (x, gradient))
  if x.dtype != jnp.bfloat16:
    return _whole(x, gradient, precision)
  columns = with_layout_constraint(x.T, Layout((0, 1)))  # else XLA:CPU takes twice as long
  return lax.dot(columns, gradient, precision=precision)


def _whole(x: Array, gradient: Array, precision: Any) -> Array:
  every = tuple(range(x.ndim - 1))
  return lax.dot_general(x, gradient, ((every, every), ((), ())), precision=precision)


@cache
def _gradient_of_kernel(precision: Any) -> dict[str, Callable[[Array, Array], Array]]:
  """Return the function of each platform; the same at each call, so that jax compiles them once."""
  whole = partial(_whole, precision=precision)
  return {"cpu": partial(_flat, precision=precision), "default": whole}


class Dense(nn.Module):
  """Computes x·kernel + bias over the last axis, as flax's `Dense`, whose parameters it has.
  `dtype` is that of the arithmetic and the result; parameters are float32.
  """

  features: int
  dtype: Any = jnp.float32
  precision: Any = None
  kernel_init: Any = nn.linear.default_kernel_init

  @nn.compact
  def __call__(self, x: Float[Array, "*n i"]) -> Float[Array, "*n o"]:
    """Apply the layer to the last axis; on CPU all gradients are products of two matrices."""
    kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.features), jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
    x, kernel, bias = (value.astype(self.dtype) for value in (x, kernel, bias))
    product = _times(x, kernel, self.precision)
    return product + spread(bias, product.shape)


class MaskedBatchNorm(nn.Module):
  """Computes γ·(x − E[x]) / √(Var[x] + ε) + β per channel (Ioffe and Szegedy 2015).

  In training, mean and variance are those of the positions with mask 1 of the whole batch, over all
  shards; in prediction they are the running ones of the collection `batch_stats`. As in PyTorch and
  Caffe, a batch is normalised with its biased variance, and the running variance is the unbiased
  one. A batch without a real position does not change the running statistics, whose old values have
  the weight `momentum` at each step.
  """

  momentum: float
  eps: float

  @nn.compact
  def __call__(
    self, x: Float[Array, "c *n"], mask: Float[Array, "*n"], *, train: bool
  ) -> Float[Array, "c *n"]:
    """Return normalised `x`, 0 where `mask` is 0; the channels come first."""
    channels = x.shape[:1]
    mean = self.variable("batch_stats", "mean", jnp.zeros, channels, jnp.float32)
    var = self.variable("batch_stats", "var", jnp.ones, channels, jnp.float32)
    scale = self.param("scale", nn.initializers.ones, channels, jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, channels, jnp.float32)
    center, spread = mean.value, var.value
    if train:
      center, spread, count = masked_moments(x, mask)
      if not self.is_initializing():
        self._remember(mean, center, count > 0)
        self._remember(var, spread * count / jnp.maximum(count - 1, 1), count > 0)
    wide = lambda value: spread_channels(value, x.shape)
    factor = scale * jax.lax.rsqrt(spread + self.eps)
    normalised = (x - wide(center)) * wide(factor) + wide(bias)
    return jnp.where(mask[None] > 0, normalised, 0.0)

  def _remember(self, running: nn.Variable, value: Array, real: Array) -> None:
    value = jax.lax.stop_gradient(value)
    mixed = self.momentum * running.value + (1 - self.momentum) * value
    running.value = jnp.where(real, mixed, running.value)


def masked_moments(
  x: Float[Array, "c *n"], mask: Float[Array, "*n"]
) -> tuple[Float[Array, "c"], Float[Array, "c"], Float[Array, ""]]:
  """Return mean and biased variance of each channel where `mask` is not 0, and the count.

  Computed in two passes, because E[x²] − E[x]² loses digits where the mean is large.
  """
  real = mask[None] > 0
  count = jnp.sum(mask > 0).astype(jnp.float32)
  total = jnp.maximum(count, 1.0)
  mean = channel_sums(jnp.where(real, x, 0.0)) / total
  centred = x - spread_channels(mean, x.shape)
  var = channel_sums(jnp.where(real, jnp.square(centred), 0.0)) / total
  return mean, var, count
