"""Optimizers, learning-rate schedules, learning-rate multipliers and frozen parameters."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct, traverse_util

from as2jax.layers.dense import norm
from as2jax.runtime.errors import InputError

SCHEDULES = ("constant", "linear")
RULES: dict[str, Callable[[float, float, float], optax.GradientTransformation]] = {
  "adam": lambda b1, b2, eps: optax.scale_by_adam(b1=b1, b2=b2, eps=eps),
  "adadelta": lambda b1, b2, eps: optax.scale_by_adadelta(rho=b2, eps=eps),
  "sgd": lambda b1, b2, eps: optax.identity(),
}


def schedule(name: str, *, rate: float, warmup: float, epochs: float) -> Callable:
  """Returns the learning rate as a function of progress (examples seen / examples of an epoch).

  Args:
    name: `constant` after the warm-up, or `linear`, which decays to 0 at the end of the last epoch.
    rate: the peak learning rate.
    warmup: fraction of one epoch's examples over which the rate rises linearly from 0.
    epochs: length of the run in epochs, for `linear`.

  Raises:
    InputError: an unknown name.

  """
  if name not in SCHEDULES:
    raise InputError(f"optimizer.schedule = {name!r}: use one of {SCHEDULES}")

  def at(progress):
    value = jnp.asarray(rate, jnp.float32)
    if warmup > 0:
      value = value * jnp.clip(progress / warmup, 0.0, 1.0)
    if name == "linear":
      value = value * jnp.clip((epochs - progress) / max(epochs - warmup, 1e-9), 0.0, 1.0)
    return value

  return at


def from_config(section: Mapping[str, Any]) -> optax.GradientTransformation:
  """Builds the `direction` that a config's section `optimizer` describes."""
  keys = ("b1", "b2", "eps", "clip_norm", "weight_decay", "layer_decay", "lr_multipliers")
  rule = direction(section["name"], **{key: section[key] for key in keys})
  return averaging(rule, section["average"]) if section["average"] else rule


@struct.dataclass
class Averaged:
  """Holds the state of a rule and the average of the parameters that it has moved.

  Attributes:
    rule: the rule's own state.
    parameters: the average, by path; before the first step the parameters themselves.
    steps: that it is an average of.
    decay: see `averaging`.

  """

  rule: Any
  parameters: dict[str, Any]
  steps: Any
  decay: float = struct.field(pytree_node=False)


def averaging(
  rule: optax.GradientTransformation, decay: float
) -> optax.GradientTransformationExtraArgs:
  """Adds to a rule an average of the parameters, with which a model is evaluated.

  After step t it is the mean of the parameters after each step as long as t ≤ 1 / (1 − decay), and
  from then on an exponential moving average (Polyak and Juditsky 1992). `followed` takes the
  parameters in.
  """

  def init(params):
    return Averaged(rule.init(params), dict(params), jnp.zeros((), jnp.int32), decay)

  def update(updates, state, params=None):
    updates, moved = rule.update(updates, state.rule, params)
    return updates, state.replace(rule=moved)

  return optax.GradientTransformationExtraArgs(init, update)


def followed(state: Any, params: dict[str, Any]) -> Any:
  """Returns the state of an optimizer once it has moved the parameters to `params`."""
  if not isinstance(state, Averaged):
    return state
  steps = state.steps + 1
  share = jnp.maximum(1.0 / steps.astype(jnp.float32), 1.0 - state.decay)
  toward = lambda a, p: (a + share * (p.astype(jnp.float32) - a)).astype(p.dtype)
  return state.replace(parameters=jax.tree.map(toward, state.parameters, params), steps=steps)


def evaluated(state: Any, params: dict[str, Any]) -> dict[str, Any]:
  """Returns the parameters to evaluate: the average that an optimizer keeps, or `params`."""
  return state.parameters if isinstance(state, Averaged) else params


def direction(
  name: str,
  *,
  b1: float,
  b2: float,
  eps: float,
  clip_norm: float,
  weight_decay: float,
  layer_decay: float,
  lr_multipliers: Sequence[tuple[str, float]],
) -> optax.GradientTransformation:
  """Chains clipping, the rule and multipliers: the update's direction before the learning rate.

  Args:
    name: of a rule in `RULES`.
    b1, b2, eps: of Adam; AdaDelta's ρ is `b2`.
    clip_norm: the largest global norm of the gradient; 0 does not clip.
    weight_decay: decoupled weight decay, on matrices only: on no bias and no scale of a norm, of one
      layer or of stacked ones; 0 leaves it out.
    layer_decay, lr_multipliers: see `multipliers`. Gradients with multiplier 0 do not count in the
      norm that is clipped.

  Raises:
    InputError: an unknown name.

  """
  if name not in RULES:
    raise InputError(f"optimizer.name = {name!r}: use one of {tuple(RULES)}")
  chain = [_clip(clip_norm)] if clip_norm else []
  chain.append(RULES[name](b1, b2, eps))
  factors = None
  if layer_decay != 1 or lr_multipliers:
    factors = lambda params: multipliers(params, layer_decay, lr_multipliers)
    chain.insert(0, _scale_by(lambda p: {k: np.sign(f) for k, f in factors(p).items()}))
  if weight_decay:
    chain.append(optax.add_decayed_weights(weight_decay, mask=_matrices))
  if factors:
    chain.append(_scale_by(factors))
  return optax.chain(*chain)


def _matrices(params: Mapping[str, Any]) -> dict[str, bool]:
  """Says which parameters are matrices; the first axis of a stack is that of its layers."""
  return {
    path: value.ndim - path.startswith(LAYERS) > 1 and not path.endswith("bias")
    for path, value in params.items()
  }


def _clip(largest: float) -> optax.GradientTransformation:
  """Scales a gradient down to the global norm `largest` where its norm exceeds it.

  All elements are multiplied with one factor. optax's `clip_by_global_norm` selects between two
  arrays instead, with which XLA copies parameters and moments before it overwrites them, and an
  update takes four times as long on CPU.
  """

  def update(updates, params):
    del params
    factor = largest / jnp.maximum(norm(updates), largest)
    return jax.tree.map(lambda u: u * factor, updates)

  return optax.stateless(update)


LAYERS = "encoder/layers/"  # before the paths of a transformer's parameters, stacked over layers
FIRST = (
  "encoder/first_layer/"  # where the first layer differs from the others and is not in the stack
)
ABOVE = "encoder/final_norm/"  # over the last layer


def multipliers(
  params: Mapping[str, Any], layer_decay: float, lr_multipliers: Sequence[tuple[str, float]]
) -> dict[str, np.ndarray]:
  """Computes the factor of the learning rate of each parameter, by path.

  The layers of a transformer are stacked on the first axis of `encoder/layers/…`, so a multiplier
  is an array that broadcasts from there. With `encoder/first_layer/…` beside the stack, that is layer
  0, and the stack begins with layer 1.

  Args:
    params: parameters by path.
    layer_decay: layer l of L (from 0) has layer_decay^(L - l), the embeddings layer_decay^(L + 1),
      everything above the layers 1 (Clark et al. 2020, ELECTRA).
    lr_multipliers: (regular expression, factor) pairs. The factors of all expressions that match
      somewhere in a path are multiplied; 0 freezes. A layer's parameters also match with their
      layer's number, as in `encoder/layers/3/attention/query/kernel`.

  Raises:
    InputError: `layer_decay` is not 1 and the encoder has no stack of trainable layers.

  """
  numbers = {path: _numbers(path, value, params) for path, value in params.items()}
  total = 0  # layers
  for path, layers in numbers.items():
    if path.startswith(LAYERS):
      total = max(total, 1 + (layers[-1] or 0))
  if layer_decay != 1 and not total:
    raise InputError(
      "optimizer.layer_decay: no encoder with a stack of trainable layers is there; set it to 1"
    )
  factors = {}
  for path, value in params.items():
    of_layers = [
      layer_decay ** _depth(path, n, total) * _product(lr_multipliers, path, n)
      for n in numbers[path]
    ]
    stacked = (-1,) * path.startswith(LAYERS)
    shape = (*stacked, *(1,) * (len(value.shape) - len(stacked)))
    factors[path] = np.reshape(of_layers, shape).astype(np.float32)
  return factors


def _numbers(path: str, value: Any, params: Mapping[str, Any]) -> Sequence[int | None]:
  """Returns the layers that a parameter is of, or (None,)."""
  if path.startswith(FIRST):
    return (0,)
  if not path.startswith(LAYERS):
    return (None,)
  first = any(other.startswith(FIRST) for other in params)
  return range(first, first + value.shape[0])


def _depth(path: str, layer: int | None, total: int) -> int:
  """Counts the steps of the decay that a parameter is below the top."""
  if not path.startswith("encoder/") or path.startswith(ABOVE):
    return 0
  return total + 1 if layer is None else total - layer


def _product(
  lr_multipliers: Sequence[tuple[str, float]], path: str, layer: int | None = None
) -> float:
  """Multiplies the factors whose expression matches a path, with or without its layer."""
  return math.prod(factor for pattern, factor in lr_multipliers if _matches(pattern, path, layer))


def _matches(pattern: str, path: str, layer: int | None) -> bool:
  start = FIRST if path.startswith(FIRST) else LAYERS
  numbered = path if layer is None else path.replace(start, f"{LAYERS}{layer}/", 1)
  return bool(re.search(pattern, path) or re.search(pattern, numbered))


def _scale_by(factors: Callable[[Mapping], Mapping]) -> optax.GradientTransformation:
  """Multiplies updates with constants that depend on the parameters' paths and shapes only."""

  def update(updates, params):
    constants = factors(params)
    return {k: u * jnp.broadcast_to(constants[k], u.shape) for k, u in updates.items()}

  return optax.stateless(update)


def no_optimizer() -> optax.GradientTransformation:
  """Returns an optimizer without moments, for states that only rank."""
  return optax.identity()


def split_frozen(params: dict, lr_multipliers: Sequence[tuple[str, float]]) -> tuple[dict, dict]:
  """Splits parameters into (trainable, frozen) flat dicts by path (`encoder/embeddings/…`).

  A parameter is frozen where all of its elements have multiplier 0; it then has no moments. A first
  layer outside of the stack counts as one of it here, so that the stack's numbers stay as they are.

  Args:
    params: a tree of arrays or of shapes.
    lr_multipliers: see `multipliers`; each expression must match a parameter.

  Raises:
    InputError: an expression that matches no parameter.

  """
  flat = traverse_util.flatten_dict(params, sep="/")
  numbers = lambda path: _numbers(path, flat[path], flat)
  for pattern, _ in lr_multipliers:
    if not any(_matches(pattern, path, n) for path in flat for n in numbers(path)):
      raise InputError(
        f"optimizer.lr_multipliers: {pattern!r} matches no parameter; the first "
        f"paths are {sorted(flat)[:5]}"
      )
  trainable, frozen = {}, {}
  for path, value in flat.items():
    still = all(_product(lr_multipliers, path, n) == 0 for n in numbers(path))
    (frozen if still else trainable)[path] = value
  if any(path.startswith(LAYERS) for path in trainable):
    trainable |= {path: value for path, value in frozen.items() if path.startswith(FIRST)}
    # In the order of the model, which the state of the optimizer has.
    trainable = {path: flat[path] for path in flat if path in trainable}
    frozen = {path: flat[path] for path in flat if path not in trainable}
  return trainable, frozen


def merge(trainable: dict, frozen: dict) -> dict:
  """Undoes `split_frozen`."""
  return traverse_util.unflatten_dict({**trainable, **frozen}, sep="/")
