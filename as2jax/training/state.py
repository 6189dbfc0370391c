"""The train state: shapes first, then sharded initialisation from pretrained weights.

Every leaf has a leading seed axis, of length one for a run of one seed.
"""

import functools
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
  """Everything that a step reads and writes.

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
    """The model's parameter tree."""
    return optimizers.merge(self.trainable, self.frozen)


def _initialise(
  model: System,
  batch: Any,
  pretrained: Mapping[str, Any],
  lr_multipliers: Sequence[tuple[str, float]],
  optimizer: optax.GradientTransformation,
  seed: Array,
) -> TrainState:
  variables = dict(model.init(jax.random.key(seed), batch, train=False))
  params = traverse_util.flatten_dict(variables.pop("params", {}), sep="/")
  _check_pretrained(params, pretrained)
  params = model.initial_params(params)
  # Inside the jitted function, so that the random values that are replaced are never computed.
  params.update(
    {path: jnp.asarray(value, params[path].dtype) for path, value in pretrained.items()}
  )
  trainable, frozen = optimizers.split_frozen(
    traverse_util.unflatten_dict(params, sep="/"), lr_multipliers
  )
  return TrainState(
    step=jnp.zeros((), jnp.int32),
    trainable=trainable,
    frozen=frozen,
    opt_state=optimizer.init(trainable),
    mutables=variables,
  )


def _check_pretrained(params: Mapping[str, Array], pretrained: Mapping[str, Any]) -> None:
  """Raises InputError where a pretrained array has no place in the model, or another shape."""
  for path, value in pretrained.items():
    if path not in params:
      near = sorted(p for p in params if p.split("/")[0] == path.split("/")[0])[:3]
      raise InputError(f"pretrained parameter {path!r} has no place in the model (it has {near} …)")
    if tuple(params[path].shape) != tuple(np.shape(value)):
      raise InputError(
        f"pretrained parameter {path!r} has shape {tuple(np.shape(value))}, the "
        f"model wants {tuple(params[path].shape)}"
      )


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
    model: called as `model(batch, train=…)`.
    batch: arrays or `ShapeDtypeStruct`s of one micro-batch, `[shard, …]`.
    pretrained: host arrays by parameter path; they replace the random values, for every seed.
    lr_multipliers: see `optimizers.multipliers`; parameters with multiplier 0 are frozen.

  """
  init = _initialiser(model, batch, lr_multipliers, optimizer)
  seed_values = np.asarray(seeds, np.uint32)
  shape_tree = jax.eval_shape(init, seed_values, dict(pretrained))
  shardings = sharding.tree_shardings(shape_tree, mesh)
  return jax.jit(init, out_shardings=shardings)(seed_values, dict(pretrained))


def shapes(
  model: System,
  batch: Any,
  *,
  seeds: Sequence[int],
  lr_multipliers: Sequence[tuple[str, float]],
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
) -> TrainState:
  """Shapes and shardings of what `create` returns, computed without any device."""
  init = _initialiser(model, batch, lr_multipliers, optimizer)
  shape_tree = jax.eval_shape(init, np.asarray(seeds, np.uint32), {})
  return jax.tree.map(
    lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
    shape_tree,
    sharding.tree_shardings(shape_tree, mesh),
  )


def _initialiser(
  model: System,
  batch: Any,
  lr_multipliers: Sequence[tuple[str, float]],
  optimizer: optax.GradientTransformation,
):
  """Returns the function `(seeds [n], pretrained arrays) → state`."""
  example = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), batch)

  def init(seed_values, arrays):
    one = lambda seed: _initialise(model, example, arrays, lr_multipliers, optimizer, seed)
    if len(seed_values) > 1:
      return jax.vmap(one)(seed_values)
    return jax.tree.map(lambda x: x[None], one(seed_values[0]))

  return init


def abstract(state: Any) -> Any:
  """Shapes, types and shardings of a state, or of a part of one, as the target of restoring a checkpoint."""
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)


def not_finite(state: TrainState) -> list[str]:
  """The paths of the arrays of a state that hold a number which is not finite."""
  leaves = jax.tree_util.tree_flatten_with_path(state)[0]
  floats = {
    jax.tree_util.keystr(path, simple=True, separator="/"): leaf
    for path, leaf in leaves
    if jnp.issubdtype(leaf.dtype, jnp.floating)
  }
  if not floats:
    return []
  mesh = next(iter(floats.values())).sharding.mesh
  finite = np.asarray(_all_finite(mesh)(list(floats.values())))
  return [path for path, good in zip(floats, finite, strict=True) if not good]


@functools.cache
def _all_finite(mesh: Mesh) -> Callable[[list[Array]], Array]:
  """A compiled function: whether each array is finite, as one array that every device holds."""
  every = lambda arrays: jnp.stack([jnp.isfinite(x).all() for x in arrays])
  return jax.jit(every, out_shardings=sharding.replicated(mesh))


def count(params: Mapping[str, Any]) -> int:
  """The number of parameters of one seed, from flat `[seed, …]` arrays."""
  return int(sum(np.prod(p.shape[1:]) for p in params.values()))


def ranking_variables(state: TrainState) -> dict:
  """The model's collections as predict and compare steps take them: `{"params": …, …}`, `[seed, …]`.

  Its parameters are their average where the optimizer keeps one.
  """
  return {
    "params": optimizers.merge(
      optimizers.evaluated(state.opt_state, state.trainable), state.frozen
    ),
    **state.mutables,
  }


def variables(state: TrainState) -> dict:
  """What a checkpoint of the best evaluation holds: parameters and running statistics, `[seed, …]`.

  The parameters are those that were evaluated: see `ranking_variables`.
  """
  trainable = optimizers.evaluated(state.opt_state, state.trainable)
  return {"trainable": trainable, "frozen": state.frozen, "mutables": state.mutables}


def choose(seeds: np.ndarray, new: Any, old: Any) -> Any:
  """Selects by seed from two trees `[seed, …]`: `new` where `seeds` is true, else `old`."""

  def choice(seeds, new, old):
    return jax.tree.map(
      lambda a, b: jnp.where(seeds.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old
    )

  return jax.jit(choice, out_shardings=jax.tree.map(lambda x: x.sharding, new))(seeds, new, old)
