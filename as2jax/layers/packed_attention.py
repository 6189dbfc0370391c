"""Attention over packed rows in one kernel for a GPU: segments, dropout of the weights, own gradient.

Each program of the kernel has a tile of one head's queries (in the gradient, the same tile of its keys,
too) and walks over its row's other tiles, so that neither scores nor dropout's mask are ever in memory:
the softmax is rescaled as its maximum grows (Dao et al. 2022), and the gradient computes both again.
Written for Pallas' Triton backend, which jax 0.12 has, but calls deprecated. No GPU has run it yet.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int, UInt32

TILE = 64  # tokens at most; a power of two


def tile_of(length: int) -> int:
  """Return the tokens of a tile: the largest power of two that divides `length`, up to `TILE`."""
  return min(length & -length, TILE)


@partial(jax.custom_vjp, nondiff_argnums=(5, 6, 7))
def packed_attention(
  query: Float[Array, "b l h k"],
  key: Float[Array, "b l h k"],
  value: Float[Array, "b l h k"],
  segment: Int[Array, "b l"],
  words: UInt32[Array, "2"],
  drop: Callable[[Array, Array, Any], Array] | None = None,
  precision: Any = None,
  interpret: bool = False,
) -> Float[Array, "b l h k"]:
  """Return `transformer.attend` within segments, in one kernel: softmax(QKᵀ/√k)V.

  `drop(weights, number, words)` is dropout of weights by their numbers in the whole [b, h, l, l]; it is
  linear in the weights. Scores and softmax are float32; products take operands in `value`'s type. Rows
  are a multiple of 16 tokens and k a power of two from 16 on, as products on tensor cores want it.
  `interpret` needs no GPU.
  """
  return _forward(query, key, value, segment, words, drop, precision, interpret)[0]


def _forward(query, key, value, segment, words, drop, precision, interpret):
  b, l, h, _ = query.shape
  shapes = query, jax.ShapeDtypeStruct((b, l, h), jnp.float32)
  read = query, key, value, segment, words
  output, log_sums = _call(_forward_kernel, read, shapes, drop, precision, interpret)
  return output, (*read, output, log_sums)


def _backward(drop, precision, interpret, kept, gradient):
  *read, output, log_sums = kept
  # Σ_t weight · its gradient, also where weights were dropped.
  means = jnp.sum(output.astype(jnp.float32) * gradient.astype(jnp.float32), axis=-1)
  read = *read, log_sums, means, gradient
  return *_call(_backward_kernel, read, read[:3], drop, precision, interpret), None, None


packed_attention.defvjp(_forward, _backward)


def _call(kernel, read, shapes, drop, precision, interpret):
  """Run one program for each tile of each head and row: it reads the head's row and writes its tile."""
  b, l, h, width = read[0].shape
  tile = tile_of(l)
  # A head of a row is one axis of the grid: Triton's has three, and `vmap` over seeds adds one.
  row = {
    4: pl.BlockSpec((None, l, None, width), lambda i, j: (i // h, 0, i % h, 0)),
    3: pl.BlockSpec((None, l, None), lambda i, j: (i // h, 0, i % h)),
    2: pl.BlockSpec((None, l), lambda i, j: (i // h, 0)),
    1: pl.BlockSpec((2,), lambda i, j: (0,)),
  }
  own = {
    4: pl.BlockSpec((None, tile, None, width), lambda i, j: (i // h, j, i % h, 0)),
    3: pl.BlockSpec((None, tile, None), lambda i, j: (i // h, j, i % h)),
  }
  dot = partial(jnp.dot, precision=precision, preferred_element_type=jnp.float32)
  return pl.pallas_call(
    partial(kernel, drop=drop, dot=dot),
    grid=(b * h, l // tile),
    in_specs=[row[x.ndim] for x in read],
    out_specs=[own[x.ndim] for x in shapes],
    out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in shapes],
    compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
    interpret=interpret,
  )(*read)


def _tiles(q_ref, k_ref, segment_ref, words_ref, drop, dot):
  """Return a tile's size, and functions of a pair of tiles (queries, keys): scores, and dropout of weights."""
  l, width = q_ref.shape
  size = tile_of(l)
  head = pl.program_id(0)
  token = [lax.broadcasted_iota(jnp.uint32, (size, size), axis) for axis in (0, 1)]

  def scores(q, t):
    queries, keys = pl.ds(q * size, size), pl.ds(t * size, size)
    products = dot(q_ref[queries, :], k_ref[keys, :].T) * width**-0.5
    same = segment_ref[queries][:, None] == segment_ref[keys][None, :]
    return jnp.where(same, products, -jnp.inf)

  def dropped(weights, q, t):
    if drop is None:
      return weights
    rows = (head * l + q * size).astype(jnp.uint32) + token[0]
    number = rows * jnp.uint32(l) + (t * size).astype(jnp.uint32) + token[1]
    return drop(weights, number, words_ref)

  return size, scores, dropped


def _forward_kernel(
  q_ref, k_ref, v_ref, segment_ref, words_ref, out_ref, log_sums_ref, *, drop, dot
):
  size, scores, dropped = _tiles(q_ref, k_ref, segment_ref, words_ref, drop, dot)
  own = pl.program_id(1)

  def turn(t, carry):
    mixed, sums, top = carry
    tile = scores(own, t)
    higher = jnp.maximum(top, tile.max(axis=1))
    weights, shrink = jnp.exp(tile - higher[:, None]), jnp.exp(top - higher)
    value = v_ref[pl.ds(t * size, size), :]
    added = dot(dropped(weights, own, t).astype(value.dtype), value)
    return mixed * shrink[:, None] + added, sums * shrink + weights.sum(axis=1), higher

  none = jnp.zeros(size, jnp.float32)
  first = jnp.zeros(out_ref.shape, jnp.float32), none, none - 1e30  # finite: −∞ + ∞ is NaN
  mixed, sums, top = lax.fori_loop(0, k_ref.shape[0] // size, turn, first)
  out_ref[...] = (mixed / sums[:, None]).astype(out_ref.dtype)
  log_sums_ref[...] = top + jnp.log(sums)


def _backward_kernel(
  q_ref,
  k_ref,
  v_ref,
  segment_ref,
  words_ref,
  log_sums_ref,
  means_ref,
  gradient_ref,
  dq_ref,
  dk_ref,
  dv_ref,
  *,
  drop,
  dot,
):
  size, scores, dropped = _tiles(q_ref, k_ref, segment_ref, words_ref, drop, dot)
  own = pl.program_id(1)

  def gradients(q, t):
    """Return the dropped weights of a pair of tiles, and the gradient of queries times keys."""
    queries = pl.ds(q * size, size)
    weights = jnp.exp(scores(q, t) - log_sums_ref[queries][:, None])
    by_weight = dot(gradient_ref[queries, :], v_ref[pl.ds(t * size, size), :].T)
    by_score = weights * (dropped(by_weight, q, t) - means_ref[queries][:, None])
    by_score *= q_ref.shape[1] ** -0.5
    return dropped(weights, q, t).astype(v_ref.dtype), by_score.astype(q_ref.dtype)

  def turn(other, sums):
    dq, dk, dv = sums
    others = pl.ds(other * size, size)
    _, by_score = gradients(own, other)
    dq += dot(by_score, k_ref[others, :])
    weights, by_score = gradients(other, own)
    dk += dot(by_score.T, q_ref[others, :])
    dv += dot(weights.T, gradient_ref[others, :])
    return dq, dk, dv

  none = jnp.zeros(dq_ref.shape, jnp.float32)
  sums = lax.fori_loop(0, k_ref.shape[0] // size, turn, (none, none, none))
  for ref, total in zip((dq_ref, dk_ref, dv_ref), sums, strict=True):
    ref[...] = total.astype(ref.dtype)
