"""Unit vectors from token vectors: means, max, first or last token, attention.

A unit is a span (row, start, length) of its shard, which begins where `position` is 0; spans do not
overlap. The result has one float32 vector per slot, the zero vector for an unused one (length 0).
Sums by unit are segment sums, whose cost is linear in the tokens.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from as2jax.data.batches.batch import Tokens, Units
from as2jax.layers.transformer import INITIALIZER, MASKED
from as2jax.runtime.errors import InputError

TOKENS = ("cls", "cls_last")  # modes that take one token's vector
MODES = ("mean", "max", "cls", "cls_last", "mean_sqrt_len", "weighted_mean")


def pool(
  hidden: Float[Array, "s r l d"], tokens: Tokens, units: Units, mode: str
) -> Float[Array, "s u d"]:
  """Return one vector a unit: `mean`, `max`, the first (`cls`) or last (`cls_last`) token.

  `mean_sqrt_len` is the sum of the n tokens divided by √n; `weighted_mean` weighs the i-th token,
  from 1, by i: Σ i·h_i / (n (n+1) / 2). Special tokens count, padding does not. `max` is per
  dimension, and its gradient goes to the first token that attains it. Raises InputError for another
  mode.
  """
  if mode not in MODES:
    raise InputError(f"pooling: {mode!r} is none of {', '.join(MODES)}")
  flat = hidden.astype(jnp.float32).reshape(hidden.shape[0], -1, hidden.shape[-1])
  slots = units.length.shape[1]
  used = (units.length > 0)[..., None]
  if mode in ("mean", "mean_sqrt_len", "weighted_mean"):
    length = jnp.maximum(units.length, 1)[..., None].astype(jnp.float32)
    weight = {
      "mean": length,
      "mean_sqrt_len": jnp.sqrt(length),
      "weighted_mean": length * (length + 1) / 2,
    }[mode]
    if mode == "weighted_mean":
      flat = flat * (tokens.position.reshape(flat.shape[0], -1, 1) + 1).astype(jnp.float32)
    return _sum(flat, unit_of_token(tokens, units), slots) / weight
  if mode == "max":
    index = _first_maximum(lax.stop_gradient(flat), unit_of_token(tokens, units), slots)
  else:
    index = units.row * hidden.shape[2] + units.start
    index = (index if mode == "cls" else index + units.length - 1)[..., None]
  vectors = jnp.take_along_axis(flat, jnp.where(used, index, 0), axis=1)
  return jnp.where(used, vectors, 0)


def mean_of_role(
  hidden: Float[Array, "s r l d"], tokens: Tokens, units: Units, role: int
) -> Float[Array, "s u d"]:
  """Return the mean of each unit's tokens of one role; the zero vector where it has none."""
  flat = hidden.astype(jnp.float32).reshape(hidden.shape[0], -1, hidden.shape[-1])
  slot, slots = unit_of_token(tokens, units), units.length.shape[1]
  slot = jnp.where(tokens.role.reshape(slot.shape) == role, slot, slots)
  length = _sum(jnp.ones((*slot.shape, 1), jnp.float32), slot, slots)
  return _sum(flat, slot, slots) / jnp.maximum(length, 1)


def unit_of_token(tokens: Tokens, units: Units) -> Int[Array, "s n"]:
  """Return the slot of the unit of each token of its shard; the number of slots for none."""
  _, r, l = tokens.position.shape
  slots = units.length.shape[1]

  def shard(position, row, start, length):
    number = jnp.arange(r * l, dtype=jnp.int32)
    first = jnp.where(length > 0, row * l + start, r * l)  # out of range = not written below
    slot = jnp.full(r * l, slots, jnp.int32)
    slot = slot.at[first].set(jnp.arange(slots, dtype=jnp.int32), mode="drop")
    slot = slot[number - position.reshape(-1)]  # what its first token has
    end = jnp.append(first + length, 0)
    return jnp.where(number < end[slot], slot, slots)

  return jax.vmap(shard)(tokens.position, units.row, units.start, units.length)


class AttentionPooling(nn.Module):
  """Computes Σ softmax(h·w / √d) h over a unit's tokens, with a learned query w."""

  @nn.compact
  def __call__(
    self, hidden: Float[Array, "s r l d"], tokens: Tokens, units: Units
  ) -> Float[Array, "s u d"]:
    """Return one vector a unit, 0 for slots without a unit."""
    width = hidden.shape[-1]
    query = self.param("query", INITIALIZER, (width,), jnp.float32)
    flat = hidden.astype(jnp.float32).reshape(hidden.shape[0], -1, width)
    slot, slots = unit_of_token(tokens, units), units.length.shape[1]
    scores = jnp.einsum("snd,d->sn", flat, query, precision=lax.Precision.HIGHEST) * width**-0.5

    def softmax(scores, slot):
      highest = jax.ops.segment_max(lax.stop_gradient(scores), slot, slots + 1)
      weights = jnp.exp(scores - highest[slot])
      return weights / jax.ops.segment_sum(weights, slot, slots + 1)[slot]

    return _sum(flat * jax.vmap(softmax)(scores, slot)[..., None], slot, slots)


def _sum(
  flat: Float[Array, "s n d"], slot: Int[Array, "s n"], slots: int
) -> Float[Array, "s {slots} d"]:
  return jax.vmap(partial(jax.ops.segment_sum, num_segments=slots + 1))(flat, slot)[:, :-1]


def _first_maximum(
  flat: Float[Array, "s n d"], slot: Int[Array, "s n"], slots: int
) -> Int[Array, "s {slots} d"]:
  """Return the number of the first token of each unit with its maximum, or NaN, per dimension."""

  def shard(flat, slot):
    number = jnp.arange(flat.shape[0], dtype=jnp.int32)[:, None]
    attains = (flat == jax.ops.segment_max(flat, slot, slots + 1)[slot]) | jnp.isnan(flat)
    number = jnp.where(attains, number, jnp.int32(flat.shape[0]))
    return jax.ops.segment_min(number, slot, slots + 1)[:-1]

  return jnp.minimum(jax.vmap(shard)(flat, slot), flat.shape[1] - 1)


class StructuredSelfAttention(nn.Module):
  """Computes M = A·H with A = softmax(W₂ tanh(W₁ Hᵀ)) over a sentence's words; eqs. 6, 7.

  `hops` is r; `size` is d_a, units of the hidden layer; neither layer has a bias.
  """

  hops: int
  size: int
  precision: Any

  @nn.compact
  def __call__(
    self, hidden: Float[Array, "n l d"], real: Bool[Array, "n l"]
  ) -> tuple[Float[Array, "n {self.hops*hidden.shape[-1]}"], Float[Array, "n {self.hops} l"]]:
    """Return M, its rows one after the other, and A; both 0 for a sentence without words."""
    dense = lambda size, name: nn.Dense(size, use_bias=False, precision=self.precision, name=name)
    scores = dense(self.hops, "hops")(jnp.tanh(dense(self.size, "hidden")(hidden)))
    scores = jnp.where(real[..., None], scores, MASKED)
    weights = jnp.where(real[..., None], jax.nn.softmax(scores, axis=1), 0.0)
    sums = jnp.einsum("nlr,nld->nrd", weights, hidden, precision=self.precision)
    return sums.reshape(len(sums), -1), weights.swapaxes(1, 2)


def redundancy(weights: Float[Array, "n r l"]) -> Float[Array, "n"]:
  """Return ‖AAᵀ − I‖² (Frobenius; eq. 8): 0 where each hop attends to a single word of its own."""
  product = jnp.einsum("nrl,nql->nrq", weights, weights, precision=jax.lax.Precision.HIGHEST)
  return jnp.square(product - jnp.eye(weights.shape[1])[None]).sum((1, 2))
