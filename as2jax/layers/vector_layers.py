"""Layers over one vector a text, as published heads list them: dense, LayerNorm, normalisation.

A layer is a tuple: `("dense", size, activation, whether it has a bias)`, `("norm", epsilon, whether it
has a bias)` or `("normalize",)`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from as2jax.layers.vectors import norm
from as2jax.runtime.errors import InputError

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
  """Each vector divided by its length, or by `SMALLEST_NORM` where that is greater."""
  return x / jnp.maximum(norm(x), SMALLEST_NORM)[..., None]


def check(layers: tuple[Layer, ...], key: str) -> None:
  """Raises InputError for a layer of another form; `key` names the layers in the config."""
  for layer in layers:
    kind, *rest = layer
    good = (
      kind == "dense"
      and len(rest) == 3
      and isinstance(rest[0], int)
      and rest[1] in ACTIVATIONS
      or kind == "norm"
      and len(rest) == 2
      or layer == ("normalize",)
    )
    if not good:
      raise InputError(
        f"{key}: {layer!r} is no layer; use ('dense', size, activation, bias) with one of "
        f"{', '.join(ACTIVATIONS)}, ('norm', epsilon, bias) or ('normalize',)"
      )


def apply(layer: Layer, name: str, x: Float[Array, "*n d"]) -> Float[Array, "*n e"]:
  """One layer, inside of a compact Linen module, with its parameters under `name`; float32."""
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
