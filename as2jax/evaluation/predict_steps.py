"""The predict and compare steps: a forward pass without dropout, jitted with shardings."""

from collections.abc import Callable

import jax
from flax import linen as nn
from jax.sharding import Mesh

from as2jax.runtime import sharding


def over_seeds(function: Callable, seeds: int) -> Callable:
  """Lifts a function of one seed to arguments with a leading seed axis."""
  if seeds > 1:
    return jax.vmap(function)

  def alone(*args):
    result = function(*jax.tree.map(lambda x: x[0], args))
    return jax.tree.map(lambda x: x[None], result)

  return alone


def make_predict_step(model: nn.Module, method: str, *, mesh: Mesh, seeds: int):
  """The jitted `(variables, batch) → output` of a model's method, with a seed axis, without dropout.

  `variables` are the model's collections, `{"params": …}` and others, with a leading seed axis;
  `batch` is `[1, shard, …]` (the same sentences for every seed). The output is replicated, so that
  the host can read it whichever device computed it.
  """

  def predict(variables, batch):
    batch = jax.tree.map(lambda x: x[0], batch)
    return over_seeds(lambda v: _apply(model, method, v, batch), seeds)(variables)

  return jax.jit(predict, out_shardings=sharding.replicated(mesh))


def make_compare_step(model: nn.Module, *, mesh: Mesh, seeds: int):
  """The jitted `(variables, (questions, candidates)) → {score name: [seed, pairs]}` of an encoder.

  `variables` as in `make_predict_step`; questions and candidates are vectors `[seed, pairs, d]`.
  """

  def compare(variables, pair):
    return over_seeds(lambda v, x: _apply(model, "compare", v, x), seeds)(variables, pair)

  return jax.jit(compare, out_shardings=sharding.replicated(mesh))


def _apply(model, method, variables, argument):
  return model.apply(variables, argument, train=False, method=getattr(type(model), method))
