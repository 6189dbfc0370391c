"""Vectors of texts: gathered, compared, and layers over them as published heads list these.

A layer is a tuple: `("dense", size, activation, whether it has a bias)`, `("norm", epsilon, whether it
has a bias)` or `("normalize",)`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int, Shaped


def take(values: Shaped[Array, "s n ..."], index: Int[Array, "s ..."]) -> Shaped[Array, "s ..."]:
  """Gather values by their number in their shard, such as the vectors of examples' units."""
  return jax.vmap(lambda of_shard, number: of_shard[number])(values, index)


def norm(x: Float[Array, "*n d"]) -> Float[Array, "*n"]:
  """Return the Euclidean norm over the last axis with gradient 0 (not nan) at the zero vector.
  The norm of a vector with NaN is NaN; as 0 it would be the smallest of all distances.
  """
  squared = jnp.sum(jnp.square(x), axis=-1)
  zero = squared == 0  # not its negation `squared > 0`, which is false for NaN, too
  return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, squared)))


def cosine(u: Float[Array, "*n d"], v: Float[Array, "*n d"]) -> Float[Array, "*n"]:
  """Return the cosine similarity; 0 where either vector is zero."""
  length = norm(u) * norm(v)
  return jnp.sum(u * v, axis=-1) / jnp.where(length > 0, length, 1.0)


def unit(x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
  """Divide each vector by its length; a zero vector stays as it is."""
  length = norm(x)[..., None]
  return x / jnp.where(length > 0, length, 1.0)


Layer = tuple[Any, ...]
ACTIVATIONS = {
  "tanh": jnp.tanh,
  "identity": lambda x: x,
  "relu": jax.nn.relu,
  "gelu": lambda x: jax.nn.gelu(x, approximate=False),
  "silu": jax.nn.silu,
  "sigmoid": jax.nn.sigmoid,
}
SMALLEST_NORM = 1e-12  # below it a vector is not brought to length 1, as in torch's `normalize`


def normalize(x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
  """Divide each vector by its length, or by `SMALLEST_NORM` where that is greater."""
  return x / jnp.maximum(norm(x), SMALLEST_NORM)[..., None]


def apply_layer(layer: Layer, name: str, x: Float[Array, "*n d"]) -> Float[Array, "*n e"]:
  """Apply one layer, in a compact Linen module, with its parameters under `name`; float32."""
  if layer[0] == "normalize":
    return normalize(x)
  if layer[0] == "norm":
    _, epsilon, bias = layer
    # The fast variance is the difference of two large numbers where the mean is large.
    module = nn.LayerNorm(epsilon=epsilon, use_bias=bias, use_fast_variance=False, name=name)
    return module(x)
  _, size, activation, bias = layer
  dense = nn.Dense(size, use_bias=bias, precision=jax.lax.Precision.HIGHEST, name=name)
  return ACTIVATIONS[activation](dense(x))
