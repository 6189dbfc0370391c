"""Decoders from a latent vector to the words of a text: a GRU, and a bag of words.

Both return the log-likelihood of each word. `table` [v, d] holds the word vectors that a decoder
reads; in a `tied` decoder it is also the kernel of the softmax. The logits of 128 sentences of 40
words over 50,000 words take a gigabyte, and their gradient takes another: `log_likelihood` has only
those of one chunk of tokens at any time, and the backward pass recomputes them.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from as2jax.layers.dense import column_sums, spread
from as2jax.layers.recurrent import Recurrent
from as2jax.layers.transformer import INITIALIZER
from as2jax.layers.vectors import take

DECODERS = ("gru", "mlp")


class WordScores(nn.Module):
  """Holds kernel and bias of the softmax over the vocabulary.
  Untied, it has a kernel `words` [v, hidden] of its own. Tied, the table is the kernel, and an
  output of another width than the table is projected to that width first.
  """

  tied: bool
  precision: Any

  @nn.compact
  def __call__(
    self, hidden: Float[Array, "*n h"], table: Float[Array, "v d"]
  ) -> tuple[Float[Array, "*n k"], Float[Array, "v k"], Float[Array, " v"]]:
    """Return (output, kernel, bias): `logits` of the three are the scores."""
    rows, width = table.shape
    bias = self.param("bias", nn.initializers.zeros, (rows,), jnp.float32)
    if not self.tied:
      shape = (rows, hidden.shape[-1])
      return hidden, self.param("words", INITIALIZER, shape, jnp.float32), bias
    if hidden.shape[-1] != width:
      hidden = nn.Dense(width, precision=self.precision, name="width")(hidden)
    return hidden, table, bias


class GRUDecoder(nn.Module):
  """Computes p(w₁ … w_n | z) = Π p(w_t | w_<t, z): z starts the state, and is beside each word.

  `chunk`: see `log_likelihood`; `unroll`: time steps that one turn of the compiled loop holds.
  """

  hidden_size: int
  tied: bool
  chunk: int
  unroll: int
  precision: Any

  def setup(self):
    """Create the initial state's projection, the GRU and the softmax."""
    self.start = nn.Dense(self.hidden_size, precision=self.precision)
    self.layer = Recurrent("gru", self.hidden_size, False, self.unroll, self.precision)
    self.words = WordScores(self.tied, self.precision)

  def __call__(
    self,
    z: Float[Array, "s e z"],
    read: Float[Array, "s e l d"],
    target: Int[Array, "s e l"],
    real: Bool[Array, "s e l"],
    table: Float[Array, "v d"],
  ) -> Float[Array, "s e l"]:
    """Return log p of each target, the word that follows the one `read`; 0 where not `real`."""
    s, e, length = target.shape
    beside = jnp.broadcast_to(z[:, :, None], (s, e, length, z.shape[-1]))
    x = jnp.concatenate([read, beside], axis=-1).reshape(s * e, length, -1)
    position = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), (s * e, length))
    segment = real.reshape(s * e, length).astype(jnp.int32)
    initial = jnp.tanh(self.start(z.reshape(s * e, -1)))
    hidden = self.layer(x, position, segment, initial).reshape(s, e * length, -1)
    hidden, kernel, bias = self.words(hidden, table)
    flat = lambda x: x.reshape(s, e * length)
    values = log_likelihood(
      hidden, flat(target), flat(real), kernel, bias, chunk=self.chunk, precision=self.precision
    )
    return values.reshape(s, e, length)


class BagDecoder(nn.Module):
  """Computes p(w₁ … w_n | z) = Π p(w_t | z): one hidden layer (ReLU), the words in no order."""

  hidden_size: int
  tied: bool
  precision: Any

  def setup(self):
    """Create the hidden layer and the softmax."""
    self.hidden = nn.Dense(self.hidden_size, precision=self.precision)
    self.words = WordScores(self.tied, self.precision)

  def __call__(
    self,
    z: Float[Array, "s e z"],
    read: Float[Array, "s e l d"],
    target: Int[Array, "s e l"],
    real: Bool[Array, "s e l"],
    table: Float[Array, "v d"],
  ) -> Float[Array, "s e l"]:
    """Return log p of each target; 0 where not `real`. Nothing is read."""
    del read
    scores = logits(*self.words(jax.nn.relu(self.hidden(z)), table), self.precision)
    values = jnp.take_along_axis(scores, target, axis=-1)
    values = values - jax.nn.logsumexp(scores, axis=-1)[..., None]
    return jnp.where(real, values, 0.0)


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
    ordered = jnp.pad(take(x, order), (*spare, *((0, 0),) * (x.ndim - 2)))
    return jnp.moveaxis(ordered.reshape(s, parts, chunk, *x.shape[2:]), 1, 0)

  values = _of_parts(in_parts(hidden), in_parts(target), in_parts(real), kernel, bias, precision)
  values = jnp.moveaxis(values, 0, 1).reshape(s, parts * chunk)
  return take(values, jnp.argsort(order, axis=1))


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
