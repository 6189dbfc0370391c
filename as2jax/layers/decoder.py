"""Decoders from a latent vector to the words of a text: a GRU, and a bag of words.

Both return the log-likelihood of each word. `table` [v, d] holds the word vectors that a decoder
reads; in a `tied` decoder it is also the kernel of the softmax.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from as2jax.layers.recurrent import Recurrent
from as2jax.layers.transformer import INITIALIZER
from as2jax.layers.vocabulary_softmax import log_likelihood, logits


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


DECODERS = ("gru", "mlp")
