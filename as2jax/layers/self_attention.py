"""Structured self-attention: several weighted sums of a sentence's vectors (Lin et al. 2017)."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float

from as2jax.layers.transformer import MASKED


class StructuredSelfAttention(nn.Module):
  """M = A·H with A = softmax(W₂ tanh(W₁ Hᵀ)) over a sentence's words, r rows ("hops"); eqs. 6, 7.

  Attributes:
    hops: r.
    size: d_a, units of the hidden layer; neither layer has a bias.
    precision: of the products.

  """

  hops: int
  size: int
  precision: Any

  @nn.compact
  def __call__(
    self, hidden: Float[Array, "n l d"], real: Bool[Array, "n l"]
  ) -> tuple[Float[Array, "n {self.hops*hidden.shape[-1]}"], Float[Array, "n {self.hops} l"]]:
    """M, its rows one after the other, and A; both 0 for a sentence without words."""
    dense = lambda size, name: nn.Dense(size, use_bias=False, precision=self.precision, name=name)
    scores = dense(self.hops, "hops")(jnp.tanh(dense(self.size, "hidden")(hidden)))
    scores = jnp.where(real[..., None], scores, MASKED)
    weights = jnp.where(real[..., None], jax.nn.softmax(scores, axis=1), 0.0)
    sums = jnp.einsum("nlr,nld->nrd", weights, hidden, precision=self.precision)
    return sums.reshape(len(sums), -1), weights.swapaxes(1, 2)


def redundancy(weights: Float[Array, "n r l"]) -> Float[Array, "n"]:
  """‖AAᵀ − I‖² (Frobenius; eq. 8): 0 where each hop attends to a single word of its own."""
  product = jnp.einsum("nrl,nql->nrq", weights, weights, precision=jax.lax.Precision.HIGHEST)
  return jnp.square(product - jnp.eye(weights.shape[1])[None]).sum((1, 2))
