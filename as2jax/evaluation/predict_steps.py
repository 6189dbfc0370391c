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
  """The jitted `(state, batch) → output` of a model's method, with a seed axis, without dropout.

  `batch` is `[1, shard, …]` (the same sentences for every seed); the output is replicated, so that
  the host can read it whichever device computed it.
  """

  def one(params, mutables, batch):
    return _apply(model, method, params, mutables, batch)

  def predict(state, batch):
    batch = jax.tree.map(lambda x: x[0], batch)
    over = over_seeds(lambda p, m: one(p, m, batch), seeds)
    return over(state.params, state.mutables)

  return jax.jit(predict, out_shardings=sharding.replicated(mesh))


def make_compare_step(model: nn.Module, *, mesh: Mesh, seeds: int):
  """The jitted `(state, (questions, candidates)) → {score name: [seed, pairs]}` of an encoder.

  Both are vectors `[seed, pairs, d]`.
  """

  def compare(state, pair):
    one = lambda p, m, x: _apply(model, "compare", p, m, x)
    return over_seeds(one, seeds)(state.params, state.mutables, pair)

  return jax.jit(compare, out_shardings=sharding.replicated(mesh))


def _apply(model, method, params, mutables, argument):
  return model.apply(
    {"params": params, **mutables}, argument, train=False, method=getattr(type(model), method)
  )
