"""What XLA:CPU needs written otherwise: loops over time and over layers, narrow convolutions.

The gradient of a kernel in a loop over time is a sum over time, which the loop's own derivative
would add up turn by turn, writing (and on several devices all-reducing) the whole kernel in each.
Here the backward loop keeps the cotangents of each product, and one product after the loop gives
the gradient.

A pair of sentences fills the upper left corner of its grid, on average a fifth of it (TrecQA). On
CPU, a few groups of examples are each cropped to the smallest of a few fixed sizes that holds their
pairs. On other platforms, and under `vmap` over seeds, which would compute all sizes, the whole
grids are convolved. The results are the same.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int

from as2jax.layers.dense import spread
from as2jax.layers.similarity import narrow_convolution

Weight = Array | np.ndarray  # parameters as read from a file are numpy arrays
Product = Callable[[str, Array], Array]  # (name, x [b, i]) -> x·kernel + bias [b, o]
Products = Mapping[str, tuple[Weight, Weight | None]]  # name -> (kernel [i, o], bias [o] or None)


class Direction(NamedTuple):
  """Holds one direction of `scan_units`.
  `step` is (product, state, inputs at one time [b, g]) -> (state, output [b, h]): parameters reach
  it through `product` alone, called once a name of `products`. `inputs` [b, l, g] are in the order
  of the tokens in either direction; `initial` is the state before a unit's first token in this
  direction, leaves [b, ...]. A `backward` one reads units from their last token to their first.
  """

  step: Callable[[Product, Any, Array], tuple[Any, Array]]
  products: Products
  inputs: Array
  initial: Any
  backward: bool


def affine(
  x: Float[Array, "*n i"],
  kernel: Float[Weight, "i o"],
  bias: Float[Weight, " o"] | None,
  precision: Any,
) -> Float[Array, "*n o"]:
  """Return x·kernel + bias in float32."""
  product = jnp.einsum("...i,io->...o", x.astype(jnp.float32), kernel, precision=precision)
  return product if bias is None else product + spread(bias, product.shape)


def scan_units(
  directions: Sequence[Direction],
  position: Int[Array, "b l"],
  segment: Int[Array, "b l"],
  *,
  unroll: int,
  precision: Any,
) -> list[Float[Array, "b l h"]]:
  """Return outputs of each direction, zero at padding. Differentiable in reverse mode.
  The directions run side by side in one loop of l turns, of which the compiled loop holds `unroll`
  a turn. `position` is that within the unit, from 0; `segment` is 0 for padding.
  """
  real = segment > 0
  first = real & (position == 0)
  last = real & jnp.pad(first | ~real, ((0, 0), (0, 1)), constant_values=True)[:, 1:]

  def in_time(x, backward):
    return jnp.moveaxis(jnp.flip(x, 1) if backward else x, 1, 0)

  masks = tuple(
    tuple(in_time(mask, d.backward)[..., None] for mask in (last if d.backward else first, real))
    for d in directions
  )
  outputs = _run(
    tuple(d.step for d in directions),
    unroll,
    precision,
    tuple(dict(d.products) for d in directions),
    tuple(d.initial for d in directions),
    tuple(in_time(d.inputs, d.backward) for d in directions),
    masks,
  )
  ordered = []
  for direction, output in zip(directions, outputs, strict=True):
    output = jnp.moveaxis(output, 0, 1)
    ordered.append(jnp.flip(output, 1) if direction.backward else output)
  return ordered


def _loop(steps, unroll, precision, products, initial, inputs, masks, offsets):
  """Return (outputs, operands of each product); `offsets` are added."""

  def turn(states, now):
    after = []
    for step, kernels, start, state, x, (starts, real), offset in zip(
      steps, products, initial, states, *now, strict=True
    ):
      operands = {}

      def product(name, x, kernels=kernels, offset=offset, operands=operands):
        operands[name] = x
        y = affine(x, *kernels[name], precision)
        return y if offset is None else y + offset[name]

      old = jax.tree.map(partial(jnp.where, starts), start, state)
      new, output = step(product, old, x)
      state = jax.tree.map(partial(jnp.where, real), new, old)
      after.append((state, (jnp.where(real, output, 0), operands)))
    states, results = zip(*after, strict=True)
    return states, results

  _, results = lax.scan(turn, initial, (inputs, masks, offsets), unroll=unroll)
  return tuple(zip(*results, strict=True))


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _run(steps, unroll, precision, products, initial, inputs, masks):
  offsets = (None,) * len(steps)
  return _loop(steps, unroll, precision, products, initial, inputs, masks, offsets)[0]


def _run_forward(steps, unroll, precision, products, initial, inputs, masks):
  def zeros(kernels, x):
    widths = {name: kernel.shape[1] for name, (kernel, _) in kernels.items()}
    return {name: jnp.zeros((*x.shape[:2], n), jnp.float32) for name, n in widths.items()}

  def loop(initial, inputs, offsets):
    return _loop(steps, unroll, precision, products, initial, inputs, masks, offsets)

  offsets = tuple(map(zeros, products, inputs))
  result, backward, operands = jax.vjp(loop, initial, inputs, offsets, has_aux=True)
  return result, (backward, operands, products)


def _run_backward(steps, unroll, precision, saved, cotangents):
  backward, operands, products = saved
  initial, inputs, offsets = backward(cotangents)

  def gradient(x, y, bias):
    kernel = jnp.einsum("tbi,tbo->io", x, y, precision=precision)
    return kernel, None if bias is None else y.sum((0, 1))

  products = tuple(
    {name: gradient(x[name], y[name], bias) for name, (_, bias) in kernels.items()}
    for kernels, x, y in zip(products, operands, offsets, strict=True)
  )
  return products, initial, inputs, None


_run.defvjp(_run_forward, _run_backward)


UNROLLED = 12  # layers that are unrolled by default: 10 % faster steps on CPU, longer compilation


def scan_layers(
  apply: Callable,
  layer: nn.Module,
  x: Any,
  *scanned: Any,
  length: int,
  unroll: int,
  remat: bool,
  all_layers: bool,
) -> tuple[Any, Any]:
  """Apply `apply(layer, x, *slice) → (x, output)` for `length` layers: the last x, all outputs.

  `scanned` are arrays with a first axis of layers. A turn of the loop holds `unroll` layers; 0
  means all of up to `UNROLLED` layers, and one for deeper stacks or with `remat`, by which each
  layer is recomputed in the backward pass instead of keeping its activations.
  """
  unroll = unroll or (length if length <= UNROLLED and not remat else 1)

  def turn(layer, x, *scanned):
    x = apply(layer, x, *scanned)
    return x, x if all_layers else None

  if remat:
    turn = nn.remat(turn, prevent_cse=unroll > 1)  # a loop's body needs no barrier against CSE
  elif unroll < length:
    # A loop stores what its backward pass needs, layer by layer; products alone are half of that
    # and the elementwise rest costs less to compute again than to store and load.
    turn = nn.remat(turn, prevent_cse=False, policy=jax.checkpoint_policies.dots_saveable)
  return nn.scan(
    turn,
    variable_axes={"params": 0},
    split_rngs={"params": True, "dropout": True},
    length=length,
    unroll=unroll,
  )(layer, x, *scanned)


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
  """Return `narrow_convolution` of grids that are 0 beyond `rows` × `columns` of each example.

  It is faster where neighbouring examples have the same size. The gradient with respect to `x` is
  correct within each example's rows and columns, and undefined beyond them.
  """
  h, w = kernel.shape[:2]
  least = jnp.stack(
    [jnp.minimum(rows + h - 1, x.shape[2]), jnp.minimum(columns + w - 1, x.shape[3])]
  )
  return _product(x, kernel, least, precision)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _product(x: Array, kernel: Array, least: Array, precision: str) -> Array:
  return _product_forward(x, kernel, least, precision)[0]


def _product_forward(x, kernel, least, precision):
  whole = lambda x, kernel, least: narrow_convolution(x, kernel, precision)
  y = _by_platform(whole, _in_groups(_forward_at, precision), x, kernel, least)
  return y, (x, kernel, least)


def _product_backward(precision, kept, gradient):
  def whole(x, kernel, least, gradient):
    return jax.vjp(partial(narrow_convolution, precision=precision), x, kernel)[1](gradient)

  dx, dk = _by_platform(whole, _in_groups(_backward_at, precision), *kept, gradient)
  return dx, dk, None


_product.defvjp(_product_forward, _product_backward)


def _by_platform(whole: Callable, grouped: Callable, *arguments: Array):
  """Return `grouped` on CPU, but `whole` elsewhere and under `vmap`."""
  alone = custom_vmap(grouped)

  @alone.def_vmap
  def _(size, batched, *arguments):
    axes = [0 if one else None for one in batched]
    outputs = jax.vmap(whole, in_axes=axes, axis_size=size)(*arguments)
    return outputs, jax.tree.map(lambda _: True, outputs)

  return lax.platform_dependent(*arguments, cpu=alone, default=whole)


def _in_groups(at: Callable, precision: str) -> Callable:
  """Compute group after group, each at its size.
  `at(size, precision, x, kernel, …) → (grids, sum)` is of one group cropped to `size`: the grids
  are of full size, and the sums of the groups are added; either may be None.
  """
  # The sizes that grids are cropped to, of rows or of columns.
  cut = lambda size, side, parts: sorted({max(math.ceil(size * p), min(side, size)) for p in parts})

  def compute(x, kernel, least, *more):
    n, shape = x.shape[1], x.shape[2:]
    groups = next(g for g in range(min(GROUPS, n), 0, -1) if n % g == 0)
    heights, widths = map(cut, shape, kernel.shape[:2], (ROWS, COLUMNS))
    sizes = itertools.product(heights, widths)
    part = lambda a: jnp.moveaxis(a.reshape(a.shape[0], groups, n // groups, *a.shape[2:]), 1, 0)
    join = lambda a: jnp.moveaxis(a, 0, 1).reshape(a.shape[1], n, *a.shape[3:])
    branches = [partial(at, size, precision) for size in sizes]

    def one(total, group):
      x, least, *more = group
      tallest, widest = least.max(axis=1)
      tall = jnp.searchsorted(jnp.asarray(heights), tallest)
      wide = jnp.searchsorted(jnp.asarray(widths), widest)
      grids, extra = lax.switch(tall * len(widths) + wide, branches, x, kernel, *more)
      return jax.tree.map(jnp.add, total, extra), grids

    _, extra = jax.eval_shape(branches[-1], part(x)[0], kernel, *(part(a)[0] for a in more))
    start = jax.tree.map(lambda e: jnp.zeros(e.shape, e.dtype), extra)
    total, grids = lax.scan(one, start, (part(x), part(least), *map(part, more)))
    return join(grids) if total is None else (join(grids), total)

  return compute


def _grown(y: Float[Array, "f n a b"], shape: tuple[int, int]) -> Float[Array, "f n i j"]:
  """Return `y` with zeros after its rows and columns."""
  rows, columns = y.shape[2:]
  return jnp.pad(y, [(0, 0), (0, 0), (0, shape[0] - rows), (0, shape[1] - columns)])


def _forward_at(size, precision, x, kernel):
  """Use XLA's own convolution: on CPU it takes two fifths of the time of a product over patches."""
  shape = tuple(size - side + 1 for size, side in zip(x.shape[2:], kernel.shape))
  grids = x[:, :, : size[0], : size[1]].transpose(1, 2, 3, 0)
  return _grown(_convolved(grids, kernel, precision).transpose(3, 0, 1, 2), shape), None


def _backward_at(size, precision, x, kernel, gradient):
  """Compute the kernel's gradient by a convolution over examples, the grids' over patches.

  The gradient that XLA derives for the grids from its convolution takes seven times as long.
  """
  a, b = (side - width + 1 for side, width in zip(size, kernel.shape))
  grids, gradient = x[:, :, : size[0], : size[1]], gradient[:, :, :a, :b]
  _, back = jax.vjp(lambda grids: narrow_convolution(grids, kernel, precision), grids)
  # Channels take the place of examples, and these theirs.
  dk = _convolved(grids.transpose(0, 2, 3, 1), gradient.transpose(2, 3, 1, 0), precision)
  return _grown(*back(gradient), x.shape[2:]), dk.transpose(1, 2, 0, 3)


def _convolved(x: Array, kernel: Array, precision: str) -> Array:
  dimensions = ("NHWC", "HWIO", "NHWC")
  return lax.conv_general_dilated(
    x, kernel, (1, 1), "VALID", dimension_numbers=dimensions, precision=precision
  )
