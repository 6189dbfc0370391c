"""Narrow convolution over grids that are mostly padding; windows of padding only are skipped.

A pair of sentences fills the upper left corner of its grid, on average a fifth of it (TrecQA). On
CPU, examples are divided into a few groups, and each group's grids are cropped to the smallest of a
few fixed sizes that holds all of its pairs: every size is compiled once, so that new lengths do not
recompile. On other platforms, and under `vmap` over seeds, where a choice of sizes would compute
all of them, the whole grids are convolved. The results are the same.
"""

import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int

from as2jax.layers.similarity import narrow_convolution

GROUPS = 4  # of a batch's examples, at most
# Parts of a grid's rows and columns: finer ones crop more and take longer to compile.
ROWS = (0.6, 1.0)
COLUMNS = (0.5, 0.75, 1.0)


def cropped_convolution(
  x: Float[Array, "c n i j"],
  kernel: Float[Array, "h w c f"],
  rows: Int[Array, "n"],
  columns: Int[Array, "n"],
  precision: str,
) -> Float[Array, "f n a b"]:
  """`narrow_convolution` of grids that are 0 beyond the first `rows` × `columns` of each example.

  It is faster where neighbouring examples have the same size. The gradient with respect to `x` is
  correct within each example's rows and columns, and undefined beyond them.
  """
  convolve = lambda x, kernel: narrow_convolution(x, kernel, precision)
  h, w = kernel.shape[:2]
  least = jnp.stack(
    [jnp.minimum(rows + h - 1, x.shape[2]), jnp.minimum(columns + w - 1, x.shape[3])]
  )

  @jax.custom_vjp
  def product(x, kernel, least):
    return forward(x, kernel, least)[0]

  def forward(x, kernel, least):
    whole = lambda x, kernel, least: convolve(x, kernel)
    y = _by_platform(whole, _in_groups(_forward_at(precision)), x, kernel, least)
    return y, (x, kernel, least)

  def backward(kept, gradient):
    x, kernel, least = kept
    whole = lambda x, kernel, least, gradient: jax.vjp(convolve, x, kernel)[1](gradient)
    dx, dk = _by_platform(whole, _in_groups(_backward_at(precision)), x, kernel, least, gradient)
    return dx, dk, None

  product.defvjp(forward, backward)
  return product(x, kernel, least)


def _by_platform(whole: Callable, grouped: Callable, *arguments: Array):
  """`grouped` on CPU, but `whole` elsewhere and under `vmap`."""
  alone = custom_vmap(grouped)

  @alone.def_vmap
  def _(size, batched, *arguments):
    axes = [0 if one else None for one in batched]
    outputs = jax.vmap(whole, in_axes=axes, axis_size=size)(*arguments)
    return outputs, jax.tree.map(lambda _: True, outputs)

  return lax.platform_dependent(*arguments, cpu=alone, default=whole)


def _sizes(shape: tuple[int, int], kernel: tuple[int, int]) -> list[tuple[int, int]]:
  """The sizes that grids are cropped to, as (rows, columns)."""
  cut = lambda size, side, parts: sorted({max(math.ceil(size * p), min(side, size)) for p in parts})
  return list(
    itertools.product(
      *(cut(size, side, parts) for size, side, parts in zip(shape, kernel, (ROWS, COLUMNS)))
    )
  )


def _in_groups(at: Callable) -> Callable:
  """Computes group after group, each at its size.

  `at(i, j)` is the function of one group cropped to i × j: `(x, kernel, …) → (grids, sum)`, where
  the grids are of full size and the sums of the groups are added; either may be None.
  """

  def compute(x, kernel, least, *more):
    n, shape = x.shape[1], x.shape[2:]
    groups = next(g for g in range(min(GROUPS, n), 0, -1) if n % g == 0)
    sizes = _sizes(shape, kernel.shape[:2])
    heights, widths = (sorted(set(side)) for side in zip(*sizes))
    part = lambda a: jnp.moveaxis(a.reshape(a.shape[0], groups, n // groups, *a.shape[2:]), 1, 0)
    join = lambda a: jnp.moveaxis(a, 0, 1).reshape(a.shape[1], n, *a.shape[3:])
    branches = [at(i, j) for i, j in sizes]

    def one(total, group):
      x, least, *more = group
      tall, wide = (
        jnp.searchsorted(jnp.asarray(steps), need)
        for steps, need in zip((heights, widths), least.max(axis=1))
      )
      grids, extra = lax.switch(tall * len(widths) + wide, branches, x, kernel, *more)
      return jax.tree.map(jnp.add, total, extra), grids

    _, extra = jax.eval_shape(branches[-1], part(x)[0], kernel, *(part(a)[0] for a in more))
    start = jax.tree.map(lambda e: jnp.zeros(e.shape, e.dtype), extra)
    total, grids = lax.scan(one, start, (part(x), part(least), *map(part, more)))
    return join(grids) if total is None else (join(grids), total)

  return compute


def _grown(y: Float[Array, "f n a b"], shape: tuple[int, int]) -> Float[Array, "f n i j"]:
  """`y` with zeros after its rows and columns."""
  return jnp.pad(y, [(0, 0), (0, 0), *((0, size - now) for size, now in zip(shape, y.shape[2:]))])


def _forward_at(precision: str) -> Callable:
  """XLA's own convolution: on CPU it takes two fifths of the time of a product over patches."""
  dimensions = ("NHWC", "HWIO", "NHWC")

  def at(i, j):
    def compute(x, kernel):
      shape = tuple(size - side + 1 for size, side in zip(x.shape[2:], kernel.shape))
      grids = x[:, :, :i, :j].transpose(1, 2, 3, 0)
      return _grown(
        _convolved(grids, kernel, dimensions, precision).transpose(3, 0, 1, 2), shape
      ), None

    return compute

  return at


def _backward_at(precision: str) -> Callable:
  """The kernel's gradient is a convolution that adds over examples, the grids' one over patches.

  The gradient that XLA derives for the grids from its convolution takes seven times as long.
  """
  dimensions = ("NHWC", "HWIO", "NHWC")  # channels take the place of examples, and these theirs

  def at(i, j):
    def compute(x, kernel, gradient):
      a, b = (size - side + 1 for size, side in zip((i, j), kernel.shape))
      grids, gradient = x[:, :, :i, :j], gradient[:, :, :a, :b]
      _, back = jax.vjp(lambda grids: narrow_convolution(grids, kernel, precision), grids)
      dk = _convolved(
        grids.transpose(0, 2, 3, 1), gradient.transpose(2, 3, 1, 0), dimensions, precision
      ).transpose(1, 2, 0, 3)
      return _grown(*back(gradient), x.shape[2:]), dk

    return compute

  return at


def _convolved(x: Array, kernel: Array, dimensions: tuple[str, str, str], precision: str) -> Array:
  return lax.conv_general_dilated(
    x, kernel, (1, 1), "VALID", dimension_numbers=dimensions, precision=precision
  )
