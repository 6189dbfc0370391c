"""The loop over time of recurrent layers, over rows that hold several units.

The gradient of a kernel is a sum over time. The loop's own derivative would add it up turn by turn,
which writes the whole kernel in each turn and, on several devices, all-reduces it in each turn.
Here the backward loop keeps the cotangents of each product, and one product after the loop gives
the gradient: one all-reduce, and no kernel is written in a loop.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from as2jax.layers.dense import spread

Weight = Array | np.ndarray  # parameters as read from a file are numpy arrays
Product = Callable[[str, Array], Array]  # (name, x [b, i]) -> x·kernel + bias [b, o]
Products = Mapping[str, tuple[Weight, Weight | None]]  # name -> (kernel [i, o], bias [o] or None)


class Direction(NamedTuple):
  """One direction of `scan_units`.

  Attributes:
    step: (product, state, inputs at one time [b, g]) -> (state, output [b, h]). Parameters reach it
      through `product` alone, which it calls once a name.
    products: the parameters of each product by name.
    inputs: [b, l, g], in the order of the tokens in either direction.
    initial: the state before a unit's first token in this direction, leaves [b, ...]; units that
      share a row share it.
    backward: whether it reads units from their last token to their first.

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
  """x·kernel + bias in float32."""
  product = jnp.einsum("...i,io->...o", x.astype(jnp.float32), kernel, precision=precision)
  return product if bias is None else product + spread(bias, product.shape)


def single(products: Products, precision: Any) -> Product:
  """A `Product` for a single step outside the loop."""
  return lambda name, x: affine(x, *products[name], precision)


def scan_units(
  directions: Sequence[Direction],
  position: Int[Array, "b l"],
  segment: Int[Array, "b l"],
  *,
  unroll: int,
  precision: Any,
) -> list[tuple[Float[Array, "b l h"], Any]]:
  """Outputs of each direction (zero at padding) and its state after a row's last unit.

  Reading backward, that is the unit which the row begins with. A row without a unit keeps the
  initial state. Differentiable in reverse mode.

  Args:
    directions: run side by side in one loop of l turns.
    position: position within the unit, from 0.
    segment: 0 for padding.
    unroll: turns that one turn of the compiled loop holds.
    precision: of the products.

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
  final, outputs = _run(
    tuple(d.step for d in directions),
    unroll,
    precision,
    tuple(dict(d.products) for d in directions),
    tuple(d.initial for d in directions),
    tuple(in_time(d.inputs, d.backward) for d in directions),
    masks,
  )
  ordered = []
  for direction, state, output in zip(directions, final, outputs, strict=True):
    output = jnp.moveaxis(output, 0, 1)
    ordered.append((jnp.flip(output, 1) if direction.backward else output, state))
  return ordered


def _loop(steps, unroll, precision, products, initial, inputs, masks, offsets):
  """((final states, outputs), operands): `offsets` are added to, `operands` enter each product."""

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

  final, results = lax.scan(turn, initial, (inputs, masks, offsets), unroll=unroll)
  outputs, operands = zip(*results, strict=True)
  return (final, outputs), operands


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _run(steps, unroll, precision, products, initial, inputs, masks):
  offsets = (None,) * len(steps)
  return _loop(steps, unroll, precision, products, initial, inputs, masks, offsets)[0]


def _run_forward(steps, unroll, precision, products, initial, inputs, masks):
  offsets = tuple(
    {
      name: jnp.zeros((*x.shape[:2], kernel.shape[1]), jnp.float32)
      for name, (kernel, _) in kernels.items()
    }
    for kernels, x in zip(products, inputs, strict=True)
  )
  result, backward, operands = jax.vjp(
    lambda initial, inputs, offsets: _loop(
      steps, unroll, precision, products, initial, inputs, masks, offsets
    ),
    initial,
    inputs,
    offsets,
    has_aux=True,
  )
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
