"""Gathering and comparing the vectors of units."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def take(units: Float[Array, "s u d"], members: Int[Array, "s e"]) -> Float[Array, "s e d"]:
  """The vectors that examples point to; indices are local to their shard."""
  return jnp.take_along_axis(units, members[..., None], axis=1)


def norm(x: Float[Array, "*n d"]) -> Float[Array, "*n"]:
  """Euclidean norm over the last axis with gradient 0 (not nan) at the zero vector."""
  squared = jnp.sum(jnp.square(x), axis=-1)
  positive = squared > 0
  return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)


def cosine(u: Float[Array, "*n d"], v: Float[Array, "*n d"]) -> Float[Array, "*n"]:
  """Cosine similarity; 0 where either vector is zero."""
  length = norm(u) * norm(v)
  return jnp.sum(u * v, axis=-1) / jnp.where(length > 0, length, 1.0)
