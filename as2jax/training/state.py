"""What training changes: the train state, and the tracker of early stopping.

Every leaf of a train state has a leading seed axis, of length one for a run of one seed.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct, traverse_util
from jax.sharding import Mesh
from jaxtyping import Array, Int

from as2jax.models.system import System
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.training import optimizers


@struct.dataclass
class TrainState:
  """Holds everything that a step reads and writes.

  Attributes:
    step: steps taken, `[seed]`.
    trainable, frozen: parameters by path (`encoder/…`), `[seed, …]` each.
    opt_state: the optimizer's state, over `trainable` only.
    mutables: other collections of the model (running statistics).

  """

  step: Int[Array, "n"]
  trainable: dict[str, Array]
  frozen: dict[str, Array]
  opt_state: Any
  mutables: Any

  @property
  def params(self) -> dict:
    """Returns the model's parameter tree."""
    return optimizers.merge(self.trainable, self.frozen)


def create(
  model: System,
  batch: Any,
  *,
  seeds: Sequence[int],
  pretrained: Mapping[str, Any],
  lr_multipliers: Sequence[tuple[str, float]],
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
) -> TrainState:
  """Creates a sharded state with one entry per seed.

  Args:
    batch: arrays or `ShapeDtypeStruct`s of one micro-batch, `[shard, …]`.
    pretrained: host arrays by parameter path; they replace the random values, for every seed.
    lr_multipliers: see `optimizers.multipliers`; parameters with multiplier 0 are frozen.

  """
  own = {"lr_multipliers": lr_multipliers, "optimizer": optimizer}
  target = shapes(model, batch, seeds=seeds, mesh=mesh, **own)
  init = jax.jit(
    _initialiser(model, batch, **own), out_shardings=jax.tree.map(lambda x: x.sharding, target)
  )
  return init(np.asarray(seeds, np.uint32), dict(pretrained))


def shapes(
  model: System, batch: Any, *, seeds: Sequence[int], mesh: Mesh, **options: Any
) -> TrainState:
  """Returns the shapes and shardings of what `create` returns, without any device."""
  init = _initialiser(model, batch, **options)
  tree = jax.eval_shape(init, np.asarray(seeds, np.uint32), {})
  return jax.tree.map(
    lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
    tree,
    sharding.tree_shardings(tree, mesh),
  )


def _initialiser(
  model: System,
  batch: Any,
  *,
  lr_multipliers: Sequence[tuple[str, float]],
  optimizer: optax.GradientTransformation,
):
  """Returns the function `(seeds [n], pretrained arrays) → state`."""
  example = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), batch)

  def of_seed(seed, pretrained):
    variables = dict(model.init(jax.random.key(seed), example, train=False))
    params = traverse_util.flatten_dict(variables.pop("params", {}), sep="/")
    for path, value in pretrained.items():
      here = tuple(params[path].shape) if path in params else "none of this name"
      if here != tuple(np.shape(value)):
        raise InputError(
          f"pretrained parameter {path!r} has shape {tuple(np.shape(value))}; the model has {here}"
        )
    params = model.initial_params(params)
    # Inside the jitted function, so that the random values that are replaced are never computed.
    for path, value in pretrained.items():
      params[path] = jnp.asarray(value, params[path].dtype)
    tree = traverse_util.unflatten_dict(params, sep="/")
    trainable, frozen = optimizers.split_frozen(tree, lr_multipliers)
    step, opt_state = jnp.zeros((), jnp.int32), optimizer.init(trainable)
    return TrainState(step, trainable, frozen, opt_state, variables)

  def init(seeds, pretrained):
    return over_seeds(lambda seed: of_seed(seed, pretrained), len(seeds))(seeds)

  return init


def over_seeds(function: Callable, seeds: int) -> Callable:
  """Lifts a function of one seed to arguments with a leading seed axis."""
  if seeds > 1:
    return jax.vmap(function)

  def alone(*args):
    result = function(*jax.tree.map(operator.itemgetter(0), args))
    return jax.tree.map(operator.itemgetter(None), result)  # a leading axis of 1

  return alone


def abstract(state: Any) -> Any:
  """Returns the shapes, types and shardings of (a part of) a state, to restore a checkpoint into."""
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)


def not_finite(state: TrainState) -> list[str]:
  """Returns the paths of the arrays of a state that are not finite."""
  paths, arrays = [], []
  for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
    if jnp.issubdtype(leaf.dtype, jnp.floating):
      paths.append(jax.tree_util.keystr(path, simple=True, separator="/"))
      arrays.append(leaf)
  if not arrays:
    return []
  finite = np.asarray(_all_finite(arrays[0].sharding.mesh)(arrays))
  return [path for path, good in zip(paths, finite, strict=True) if not good]


@functools.cache
def _all_finite(mesh: Mesh) -> Callable[[list[Array]], Array]:
  """Compiles a function that says whether each array is finite, to every device."""
  every = lambda arrays: jnp.stack([jnp.isfinite(x).all() for x in arrays])
  return jax.jit(every, out_shardings=sharding.replicated(mesh))


def count(params: Mapping[str, Any]) -> int:
  """Counts the parameters of one seed, from flat `[seed, …]` arrays."""
  return int(sum(np.prod(p.shape[1:]) for p in params.values()))


def ranking_variables(state: TrainState) -> dict:
  """Returns the collections that predict and compare steps take: `{"params": …, …}`, `[seed, …]`."""
  return {"params": state.params, **state.mutables}


def variables(state: TrainState) -> dict:
  """Returns what a checkpoint of the best evaluation holds, `[seed, …]`."""
  return {"trainable": state.trainable, "frozen": state.frozen, "mutables": state.mutables}


def choose(seeds: Any, new: Any, old: Any) -> Any:
  """Selects by seed from two trees `[seed, …]`: `new` where `seeds` is true, else `old`."""
  of_seed = lambda a, b: jnp.where(seeds.reshape(-1, *(1,) * (a.ndim - 1)), a, b)
  return jax.tree.map(of_seed, new, old)


@dataclasses.dataclass
class Tracker:
  """Holds the state of early stopping between evaluations; saved with every checkpoint.

  By seed: the best value with its step and epoch, evaluations waited since, and whether it still trains;
  `patience`: evaluations without an improvement after which a seed stops; `saved_step`: of the last best.
  """

  patience: int
  best: list[float | None]
  best_step: list[int]
  best_epoch: list[int]
  waited: list[int]
  active: list[bool]
  saved_step: int = -1

  @classmethod
  def start(cls, seeds: int, patience: int) -> "Tracker":
    """Returns the state before the first evaluation."""
    return cls(patience, [None] * seeds, [0] * seeds, [0] * seeds, [0] * seeds, [True] * seeds)

  def update(self, values: Sequence[float], step: int, epoch: int) -> list[bool]:
    """Records one evaluation; returns which active seeds improved (a tie is no improvement)."""
    improved = []
    for i, value in enumerate(values):
      best = self.best[i]
      better = self.active[i] and (best is None or value > best)
      improved.append(better)
      if better:
        self.best[i], self.best_step[i], self.best_epoch[i] = float(value), step, epoch
        self.waited[i] = 0
      elif self.active[i]:
        self.waited[i] += 1
        self.active[i] = self.waited[i] < self.patience
    return improved
