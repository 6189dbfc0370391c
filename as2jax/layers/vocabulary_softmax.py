"""Log-likelihood of words under a softmax over a whole vocabulary, one chunk of tokens at a time.

The logits of 128 sentences of 40 words over 50,000 words take a gigabyte, and their gradient takes
another. Here only the logits of one chunk exist at any time: the backward pass recomputes them.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from as2jax.layers.dense import spread


def logits(
  hidden: Float[Array, "*n d"],
  kernel: Float[Array, "v d"],
  bias: Float[Array, " v"],
  precision: Any,
) -> Float[Array, "*n v"]:
  """hidden·kernelᵀ + bias, float32."""
  product = jnp.einsum("...d,vd->...v", hidden.astype(jnp.float32), kernel, precision=precision)
  return product + spread(bias, product.shape)


def log_softmax_at(scores: Float[Array, "*n v"], target: Int[Array, "*n"]) -> Float[Array, "*n"]:
  """Log softmax(scores)[target].

  The target is selected by comparison, whose gradient fuses with the softmax's; the gradient of a
  gather would scatter into an array of all logits.
  """
  number = lax.broadcasted_iota(target.dtype, scores.shape, scores.ndim - 1)
  chosen = jnp.where(number == target[..., None], scores, 0.0).sum(-1)
  return chosen - jax.nn.logsumexp(scores, axis=-1)


def log_likelihood(
  hidden: Float[Array, "s n d"],
  target: Int[Array, "s n"],
  real: Bool[Array, "s n"],
  kernel: Float[Array, "v d"],
  bias: Float[Array, " v"],
  *,
  chunk: int,
  precision: Any,
) -> Float[Array, "s n"]:
  """Log p(target | hidden) of each token, 0 where it is not `real`.

  With chunks, real tokens are moved to the front of their shard, and a chunk in which no shard has
  any is skipped, so that padding costs nothing. The results equal those of the plain computation.

  Args:
    chunk: number of tokens of a shard whose logits exist at once; 0 keeps all of them for the
      backward pass, which is faster where they fit into memory.

  """

  def of(hidden, target, kernel, bias):
    return log_softmax_at(logits(hidden, kernel, bias, precision), target)

  s, n, _ = hidden.shape
  if not chunk or n <= chunk:
    return jnp.where(real, of(hidden, target, kernel, bias), 0.0)
  order = jnp.argsort(~real, axis=1, stable=True)
  parts = -(-n // chunk)
  spare = ((0, 0), (0, parts * chunk - n))

  def in_parts(x):
    index = order.reshape(s, n, *(1,) * (x.ndim - 2))
    ordered = jnp.pad(jnp.take_along_axis(x, index, axis=1), (*spare, *((0, 0),) * (x.ndim - 2)))
    return jnp.moveaxis(ordered.reshape(s, parts, chunk, *x.shape[2:]), 1, 0)

  @jax.checkpoint  # around the condition: inside, each chunk would keep a copy of the kernel
  def part(now):
    hidden, target, real = now
    values = lax.cond(
      real.any(), of, lambda *_: jnp.zeros((s, chunk), jnp.float32), hidden, target, kernel, bias
    )
    return jnp.where(real, values, 0.0)

  values = lax.map(part, (in_parts(hidden), in_parts(target), in_parts(real)))
  values = jnp.moveaxis(values, 0, 1).reshape(s, parts * chunk)
  return jnp.take_along_axis(values, jnp.argsort(order, axis=1), axis=1)
