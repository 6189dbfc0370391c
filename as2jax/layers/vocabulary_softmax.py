"""Log-likelihood of words under a softmax over a whole vocabulary, one chunk of tokens at a time.

The logits of 128 sentences of 40 words over 50,000 words take a gigabyte, and their gradient takes
another. Here only the logits of one chunk exist at any time: the backward pass recomputes them.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from as2jax.layers.dense import column_sums, spread


def logits(
  hidden: Float[Array, "*n d"],
  kernel: Float[Array, "v d"],
  bias: Float[Array, " v"],
  precision: Any,
) -> Float[Array, "*n v"]:
  """Return hidden·kernelᵀ + bias, float32."""
  product = jnp.einsum("...d,vd->...v", hidden.astype(jnp.float32), kernel, precision=precision)
  return product + spread(bias, product.shape)


def log_softmax_at(scores: Float[Array, "*n v"], target: Int[Array, "*n"]) -> Float[Array, "*n"]:
  """Return log softmax(scores)[target].
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
  """Return log p(target | hidden) of each token, 0 where it is not `real`.
  Of a shard, the logits of `chunk` tokens exist at once; 0 keeps all of them for the backward pass,
  which is faster where they fit into memory. Real tokens are moved to the front of their shard, and
  a chunk in which no shard has any is skipped, so that padding costs nothing.
  """
  s, n, _ = hidden.shape
  if not chunk or n <= chunk:
    values = log_softmax_at(logits(hidden, kernel, bias, precision), target)
    return jnp.where(real, values, 0.0)
  order = jnp.argsort(~real, axis=1, stable=True)
  parts = -(-n // chunk)
  spare = ((0, 0), (0, parts * chunk - n))

  def in_parts(x):
    index = order.reshape(s, n, *(1,) * (x.ndim - 2))
    ordered = jnp.pad(jnp.take_along_axis(x, index, axis=1), (*spare, *((0, 0),) * (x.ndim - 2)))
    return jnp.moveaxis(ordered.reshape(s, parts, chunk, *x.shape[2:]), 1, 0)

  values = _of_parts(in_parts(hidden), in_parts(target), in_parts(real), kernel, bias, precision)
  values = jnp.moveaxis(values, 0, 1).reshape(s, parts * chunk)
  return jnp.take_along_axis(values, jnp.argsort(order, axis=1), axis=1)


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def _of_parts(
  hidden: Float[Array, "p s c d"],
  target: Int[Array, "p s c"],
  real: Bool[Array, "p s c"],
  kernel: Float[Array, "v d"],
  bias: Float[Array, " v"],
  precision: Any,
) -> Float[Array, "p s c"]:
  """Return `log_likelihood` of one chunk after the other; those without a real token are skipped."""
  return _parts_forward(hidden, target, real, kernel, bias, precision)[0]


def _parts_forward(hidden, target, real, kernel, bias, precision):
  def of(hidden, target):
    scores = logits(hidden, kernel, bias, precision)
    total = jax.nn.logsumexp(scores, axis=-1)
    return jnp.take_along_axis(scores, target[..., None], axis=-1)[..., 0] - total, total

  def part(now):
    hidden, target, real = now
    nothing = lambda *_: (jnp.zeros(real.shape, jnp.float32),) * 2
    values, total = lax.cond(real.any(), of, nothing, hidden, target)
    return jnp.where(real, values, 0.0), total

  values, totals = lax.map(part, (hidden, target, real))
  return values, (hidden, target, real, kernel, bias, totals)


def _parts_backward(precision, kept, gradient):
  """Compute the logits once more; with the divisor's log kept, nothing is added up again."""
  hidden, target, real, kernel, bias, totals = kept

  def turn(sums, now):
    hidden, target, real, total, gradient = now

    def add(sums):
      scores = logits(hidden, kernel, bias, precision)
      number = lax.broadcasted_iota(target.dtype, scores.shape, scores.ndim - 1)
      slope = (number == target[..., None]) - jnp.exp(scores - total[..., None])
      slope = slope * jnp.where(real, gradient, 0.0)[..., None]
      # [d, v]: as the product's left side XLA:CPU would write the slopes once more, transposed.
      by_kernel = jnp.einsum("scd,scv->dv", hidden.astype(jnp.float32), slope, precision=precision)
      by_hidden = jnp.einsum("scv,vd->scd", slope, kernel, precision=precision)
      sums = sums[0] + by_kernel, sums[1] + column_sums(slope)
      return sums, by_hidden.astype(hidden.dtype)

    return lax.cond(real.any(), add, lambda sums: (sums, jnp.zeros_like(hidden)), sums)

  start = jnp.zeros(kernel.shape[::-1], jnp.float32), jnp.zeros(bias.shape, jnp.float32)
  (by_kernel, by_bias), by_hidden = lax.scan(turn, start, (hidden, target, real, totals, gradient))
  return by_hidden, None, None, by_kernel.T, by_bias


_of_parts.defvjp(_parts_forward, _parts_backward)
