"""Floating-point operations of the matrix products and convolutions of a traced program."""

import math
from typing import Any

import jax


def matrix_flops(jaxpr: Any) -> float:
  """Operations over all devices, loops of known length as often as they turn.

  A multiply-add counts two. Of alternatives (`cond`) the dearest counts; a loop of unknown length
  counts once.
  """
  return sum(_of(equation) for equation in jaxpr.eqns)


def _of(equation: Any) -> float:
  kind, params = equation.primitive.name, equation.params
  out = equation.outvars[0].aval if equation.outvars else None
  if kind == "dot_general":
    (contracted, _), _ = params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    return 2.0 * math.prod(out.shape) * math.prod(shape[i] for i in contracted)
  if kind == "conv_general_dilated":
    kernel = equation.invars[1].aval.shape
    features = kernel[params["dimension_numbers"].rhs_spec[0]]
    return 2.0 * math.prod(out.shape) * math.prod(kernel) / features / params["batch_group_count"]
  inner = [
    matrix_flops(getattr(value, "jaxpr", value))
    for value in jax.tree.leaves(
      list(params.values()), is_leaf=lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")
    )
    if hasattr(getattr(value, "jaxpr", value), "eqns")
  ]
  if kind == "cond":
    return max(inner, default=0.0)
  return sum(inner) * (params["length"] if kind == "scan" else 1)
