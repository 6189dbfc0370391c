"""Unit vectors from token vectors: mean, max, first or last token, attention.

A unit is the span (row, start, length) of its shard; the result has one vector a slot, the zero
vector in an unused one (length 0), in float32 whatever the encoder's type.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Bool, Float

from as2jax.data.batch import Tokens, Units
from as2jax.encoders.layers import INITIALIZER, MASKED
from as2jax.errors import InputError

MODES = ("mean", "max", "cls", "cls_last")


def membership(tokens: Tokens, units: Units) -> Bool[Array, "s u r*l"]:
  """Which tokens of its shard belong to each unit: special tokens in, padding out."""
  _, r, l = tokens.segment.shape
  number = jnp.arange(r * l)
  first = (units.row * l + units.start)[..., None]
  return (number >= first) & (number < first + units.length[..., None])


def pool(
  hidden: Float[Array, "s r l d"], tokens: Tokens, units: Units, mode: str
) -> Float[Array, "s u d"]:
  """One vector a unit: `mean` or `max` of its tokens, its first (`cls`) or last (`cls_last`) one.

  `max` is per dimension, and its gradient goes to the first token that attains it.
  """
  if mode not in MODES:
    raise InputError(f"pooling: {mode!r} is none of {', '.join(MODES)}")
  flat = hidden.astype(jnp.float32).reshape(hidden.shape[0], -1, hidden.shape[-1])
  if mode == "mean":
    weights = membership(tokens, units) / jnp.maximum(units.length, 1)[..., None]
    return weighted_sum(weights.astype(jnp.float32), flat)
  used = units.length > 0
  first = units.row * hidden.shape[2] + units.start
  if mode == "max":
    index = _argmax(lax.stop_gradient(flat), tokens, units)
    vectors = jnp.take_along_axis(flat, index, axis=1)
  else:
    index = first if mode == "cls" else first + units.length - 1
    vectors = jnp.take_along_axis(flat, jnp.where(used, index, 0)[..., None], axis=1)
  return jnp.where(used[..., None], vectors, 0)


def weighted_sum(
  weights: Float[Array, "s u n"], flat: Float[Array, "s n d"]
) -> Float[Array, "s u d"]:
  """Sum of token vectors by weight, in full float32 on every device."""
  return jnp.einsum("sun,snd->sud", weights, flat, precision=lax.Precision.HIGHEST)


def _argmax(flat, tokens, units):
  """Number of the first token of each unit that attains its maximum, per dimension: [s, u, d]."""
  slots, count = units.length.shape[1], flat.shape[1]
  member = membership(tokens, units)
  slot = jnp.where(member.any(axis=1), member.argmax(axis=1), slots)  # [s, n]; the last = padding

  def shard(flat, slot):
    highest = jax.ops.segment_max(flat, slot, slots + 1)
    number = jnp.where(flat == highest[slot], jnp.arange(count)[:, None], count)
    return jax.ops.segment_min(number, slot, slots + 1)[:-1]

  return jnp.minimum(jax.vmap(shard)(flat, slot), count - 1)


class AttentionPooling(nn.Module):
  """Σ softmax(h·w / √d) h over a unit's tokens, with a learned query w (ASBERT's attention pooling)."""

  @nn.compact
  def __call__(
    self, hidden: Float[Array, "s r l d"], tokens: Tokens, units: Units
  ) -> Float[Array, "s u d"]:
    width = hidden.shape[-1]
    query = self.param("query", INITIALIZER, (width,), jnp.float32)
    flat = hidden.astype(jnp.float32).reshape(hidden.shape[0], -1, width)
    scores = jnp.einsum("snd,d->sn", flat, query, precision=lax.Precision.HIGHEST) * width**-0.5
    member = membership(tokens, units)
    weights = jax.nn.softmax(jnp.where(member, scores[:, None], MASKED), axis=-1)
    return weighted_sum(jnp.where(member, weights, 0), flat)
