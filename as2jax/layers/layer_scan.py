"""A stack of identical layers as one loop, with parameters stacked on a first axis."""

from collections.abc import Callable
from typing import Any

import jax
from flax import linen as nn

UNROLLED = 12  # layers that are unrolled by default: 10 % faster steps on CPU, longer compilation


def scan_layers(
  apply: Callable, layer: nn.Module, x: Any, *scanned: Any, length: int, unroll: int, remat: bool
) -> tuple[Any, Any]:
  """`apply(layer, x, *slice) → (x, output)` for each of `length` layers: the last x, all outputs.

  Args:
    scanned: arrays with a first axis of layers; each layer gets its slice.
    unroll: number of layers in one turn of the loop; 0 means all of up to `UNROLLED` layers, and
      one for deeper stacks or with `remat`.
    remat: whether each layer is recomputed in the backward pass instead of keeping its activations.

  """
  unroll = unroll or (length if length <= UNROLLED and not remat else 1)
  if remat:
    apply = nn.remat(apply, prevent_cse=unroll > 1)  # a loop's body needs no barrier against CSE
  elif unroll < length:
    # A loop stores what its backward pass needs, layer by layer; products alone are half of that
    # and the elementwise rest costs less to compute again than to store and load.
    apply = nn.remat(apply, prevent_cse=False, policy=jax.checkpoint_policies.dots_saveable)
  return nn.scan(
    apply,
    variable_axes={"params": 0},
    split_rngs={"params": True, "dropout": True},
    length=length,
    unroll=unroll,
  )(layer, x, *scanned)
