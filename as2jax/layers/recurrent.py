"""GRU and LSTM layers over packed rows, in PyTorch's equations and parameters.

A row holds several units; the state is reset at each unit's first token (in the backward direction
at its last), and padding has no effect. All arithmetic is float32, and vectors at padding must be
finite. Inputs are projected before the loop over time, all tokens at once.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from as2jax.layers.cpu import Direction, Product, affine, scan_units
from as2jax.runtime.errors import InputError

DIRECTIONS = ("forward", "backward")
# Parameter -> PyTorch's name; a kernel is the transpose of its weight.
NAMES = {
  "input_kernel": "weight_ih",
  "recurrent_kernel": "weight_hh",
  "input_bias": "bias_ih",
  "recurrent_bias": "bias_hh",
}


def gru_step(
  product: Product, hidden: Float[Array, "b h"], projected: Float[Array, "b g"]
) -> tuple[Float[Array, "b h"], Float[Array, "b h"]]:
  """Return h' = (1 - z) n + z h with n = tanh(Wx + b + r (Uh + c)), as in PyTorch.

  The gates are reset r, update z and new n, in this order along g = 3h. The reset gate multiplies
  the recurrent product with its bias; the paper has it multiply h. Returns (state, output).
  """
  reset, update, new = jnp.split(projected, 3, axis=-1)
  to_reset, to_update, to_new = jnp.split(product("recurrent", hidden), 3, axis=-1)
  reset, update = jax.nn.sigmoid(reset + to_reset), jax.nn.sigmoid(update + to_update)
  hidden = (1 - update) * jnp.tanh(new + reset * to_new) + update * hidden
  return hidden, hidden


def lstm_step(
  product: Product,
  state: tuple[Float[Array, "b h"], Float[Array, "b h"]],
  projected: Float[Array, "b g"],
) -> tuple[tuple[Float[Array, "b h"], Float[Array, "b h"]], Float[Array, "b h"]]:
  """Return ((h', c'), h') with c' = f c + i g, h' = o tanh c', gates i, f, g, o in this order."""
  hidden, cell = state
  gates = projected + product("recurrent", hidden)
  enter, forget, new, leave = jnp.split(gates, 4, axis=-1)
  cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
  hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
  return (hidden, cell), hidden


CELLS = {"gru": (3, gru_step), "lstm": (4, lstm_step)}  # gates, and a step in time


class Cell(nn.Module):
  """Holds the parameters of one direction of `Recurrent`, whose fields these are."""

  cell: str
  hidden_size: int
  precision: Any

  @nn.compact
  def __call__(self, x: Float[Array, "b l d"], initial: Any, backward: bool) -> Direction:
    """Return the direction over `x`, whose units begin from `initial`, zero where None."""
    gates, step = CELLS[self.cell]
    width, bound = gates * self.hidden_size, self.hidden_size**-0.5

    def uniform(key, shape):  # as PyTorch draws them
      return jax.random.uniform(key, shape, jnp.float32, -bound, bound)

    shapes = {
      "input_kernel": (x.shape[-1], width),
      "recurrent_kernel": (self.hidden_size, width),
      "input_bias": (width,),
      "recurrent_bias": (width,),
    }
    weights = {name: self.param(name, uniform, shape) for name, shape in shapes.items()}
    inputs = affine(x, weights["input_kernel"], weights["input_bias"], self.precision)
    products = {"recurrent": (weights["recurrent_kernel"], weights["recurrent_bias"])}
    if initial is None:
      initial = jnp.zeros((x.shape[0], self.hidden_size), jnp.float32)
      if self.cell == "lstm":
        initial = initial, initial
    return Direction(step, products, inputs, initial, backward)


class Recurrent(nn.Module):
  """Is a GRU or LSTM layer over packed rows, equal to PyTorch's of one layer.

  Parameters are those of its cells, `forward` and `backward`. With `max` pooling of an LSTM's two
  directions this is InferSent's sentence encoder (Conneau et al. 2017). `cell` is `gru` or `lstm`,
  `hidden_size` h of each direction; `bidirectional` appends the vectors of a second direction;
  `unroll` time steps are one turn of the compiled loop.
  """

  cell: str
  hidden_size: int
  bidirectional: bool
  unroll: int
  precision: Any

  @nn.compact
  def __call__(
    self,
    x: Float[Array, "b l d"],
    position: Int[Array, "b l"],
    segment: Int[Array, "b l"],
    initial: Any = None,
  ) -> Float[Array, "b l {(1+self.bidirectional)*self.hidden_size}"]:
    """Return vectors [b, l, h] or, of both directions, [b, l, 2h]; zero at padding.
    `initial`, of one direction, is the state that each unit of a row starts from, zero where None:
    [b, h], of an LSTM the pair (hidden, cell) of these.
    """
    directions = []
    for name in DIRECTIONS[: 1 + self.bidirectional]:
      cell = Cell(self.cell, self.hidden_size, self.precision, name=name)
      directions.append(cell(x, initial, name == "backward"))
    how = {"unroll": self.unroll, "precision": self.precision}
    return jnp.concatenate(scan_units(directions, position, segment, **how), axis=-1)


def from_torch(tensors: Mapping[str, np.ndarray], prefix: str) -> dict[str, dict[str, np.ndarray]]:
  """Return the parameters of `Recurrent` from those of one layer of a GRU or LSTM of torch.

  Tensors are found as `{prefix}weight_ih_l0` and so on; both directions are read where the
  second is there. Raises InputError for a missing tensor and for shapes that do not fit.
  """
  backward = any(_torch_name(prefix, name, "backward") in tensors for name in NAMES)
  params = {}
  for direction in DIRECTIONS[: 1 + backward]:
    weights = params[direction] = {}
    for leaf in NAMES:
      name = _torch_name(prefix, leaf, direction)
      if name not in tensors:
        raise InputError(f"recurrent weights: the tensor {name!r} is missing")
      weights[leaf] = np.asarray(tensors[name], np.float32).T
    size, width = weights["input_kernel"].shape
    hidden = weights["recurrent_kernel"].shape[0]
    shapes = [weight.shape for weight in weights.values()]
    gates_fit = width in (3 * hidden, 4 * hidden)
    if not gates_fit or shapes != [(size, width), (hidden, width), (width,), (width,)]:
      raise InputError(
        f"recurrent weights: the tensors {prefix}*_l0 ({direction}) have the transposed shapes "
        f"{shapes}, which fit neither a GRU nor an LSTM"
      )
  return params


def _torch_name(prefix: str, leaf: str, direction: str) -> str:
  return f"{prefix}{NAMES[leaf]}_l0{'_reverse' if direction == 'backward' else ''}"
