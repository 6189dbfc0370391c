"""Gathering and comparing the vectors of units."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def take(units: Float[Array, "s u d"], members: Int[Array, "s e"]) -> Float[Array, "s e d"]:
  """Gathers the vectors that examples point to; indices are local to their shard."""
  return jnp.take_along_axis(units, members[..., None], axis=1)


def norm(x: Float[Array, "*n d"]) -> Float[Array, "*n"]:
  """Euclidean norm over the last axis with gradient 0 (not nan) at the zero vector.

  The norm of a vector with NaN is NaN; as 0 it would be the smallest of all distances.
  """
  squared = jnp.sum(jnp.square(x), axis=-1)
  zero = squared == 0  # not its negation `squared > 0`, which is false for NaN, too
  return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, squared)))


def cosine(u: Float[Array, "*n d"], v: Float[Array, "*n d"]) -> Float[Array, "*n"]:
  """Cosine similarity; 0 where either vector is zero."""
  length = norm(u) * norm(v)
  return jnp.sum(u * v, axis=-1) / jnp.where(length > 0, length, 1.0)
