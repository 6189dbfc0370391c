"""Optimizers, learning-rate schedules, learning-rate multipliers and frozen parameters."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import traverse_util

from as2jax.layers.dense import norm
from as2jax.runtime.errors import InputError

SCHEDULES = ("constant", "linear")
RULES: dict[str, Callable[[float, float, float], optax.GradientTransformation]] = {
  "adam": lambda b1, b2, eps: optax.scale_by_adam(b1=b1, b2=b2, eps=eps),
  "adadelta": lambda b1, b2, eps: optax.scale_by_adadelta(rho=b2, eps=eps),
  "sgd": lambda b1, b2, eps: optax.identity(),
}
LAYERS = "encoder/layers/"  # before the paths of a transformer's parameters, stacked over layers
FIRST = "encoder/first_layer/"  # where the first layer differs, and is not in the stack
ABOVE = "encoder/final_norm/"  # over the last layer


def schedule(name: str, *, rate: float, warmup: float, epochs: float) -> Callable:
  """Returns the learning rate as a function of progress (examples seen / examples of an epoch).

  Args:
    name: `constant` after the warm-up, or `linear`, which decays to 0 at the end of the last epoch.
    warmup: fraction of one epoch's examples over which the rate rises linearly from 0.

  """

  def at(progress):
    value = jnp.asarray(rate, jnp.float32)
    if warmup > 0:
      value = value * jnp.clip(progress / warmup, 0.0, 1.0)
    if name == "linear":
      value = value * jnp.clip((epochs - progress) / max(epochs - warmup, 1e-9), 0.0, 1.0)
    return value

  return at


def from_config(section: Mapping[str, Any]) -> optax.GradientTransformation:
  """Chains clipping, the rule and multipliers: the update's direction before the learning rate.

  Args:
    section: `optimizer` of a config. `b1`, `b2`, `eps` are Adam's (AdaDelta's ρ is `b2`), `clip_norm`
      the largest global norm of the gradient without what is frozen (0 does not clip),
      `weight_decay` decoupled and of matrices only.

  """
  chain = [_clip(section["clip_norm"])] if section["clip_norm"] else []
  chain.append(RULES[section["name"]](section["b1"], section["b2"], section["eps"]))
  layer_decay, lr_multipliers = section["layer_decay"], section["lr_multipliers"]
  factors = None
  if layer_decay != 1 or lr_multipliers:
    factors = lambda params: multipliers(params, layer_decay, lr_multipliers)
    chain.insert(0, _scale_by(lambda params: jax.tree.map(np.sign, factors(params))))
  if section["weight_decay"]:
    chain.append(optax.add_decayed_weights(section["weight_decay"], mask=_matrices))
  if factors:
    chain.append(_scale_by(factors))
  return optax.chain(*chain)


def _matrices(params: Mapping[str, Any]) -> dict[str, bool]:
  """Says which parameters are matrices; the first axis of a stack is that of its layers."""
  found = {}
  for path, value in params.items():
    found[path] = value.ndim - path.startswith(LAYERS) > 1 and not path.endswith("bias")
  return found


def _clip(largest: float) -> optax.GradientTransformation:
  """Scales a gradient down to the global norm `largest` where its norm exceeds it.

  optax's `clip_by_global_norm` selects between two arrays, with which XLA copies parameters and moments,
  and an update takes four times as long on CPU.
  """

  def update(updates, params):
    del params
    factor = largest / jnp.maximum(norm(updates), largest)
    return jax.tree.map(lambda u: u * factor, updates)

  return optax.stateless(update)


def _scale_by(factors: Callable[[Mapping], Mapping]) -> optax.GradientTransformation:
  """Multiplies updates with constants that depend on the parameters' paths and shapes only."""

  def update(updates, params):
    constants = factors(params)
    return {k: u * jnp.broadcast_to(constants[k], u.shape) for k, u in updates.items()}

  return optax.stateless(update)


def multipliers(
  params: Mapping[str, Any], layer_decay: float, lr_multipliers: Sequence[tuple[str, float]]
) -> dict[str, np.ndarray]:
  """Computes the factor of the learning rate of each parameter, by path.

  The layers of a transformer are stacked on the first axis of `encoder/layers/…`, so a multiplier is an
  array that broadcasts from there. `encoder/first_layer/…` beside the stack is layer 0.

  Args:
    layer_decay: layer l of L (from 0) has layer_decay^(L - l), the embeddings layer_decay^(L + 1),
      everything above the layers 1 (Clark et al. 2020, ELECTRA).
    lr_multipliers: (regular expression, factor) pairs; all factors that match somewhere in a path are
      multiplied, 0 freezes. Layers match by number, too: `encoder/layers/3/attention/query/kernel`.

  """
  total = 0  # layers
  for path, value in params.items():
    if path.startswith(LAYERS):
      total = max(total, 1 + _numbers(path, value, params)[-1])
  if layer_decay != 1 and not total:
    raise InputError(
      "optimizer.layer_decay: no encoder with a stack of trainable layers is there; set it to 1"
    )
  factors = {}
  for path, value in params.items():
    of_layers = []
    for number in _numbers(path, value, params):
      below = 0  # how many steps of the decay it is below the top
      if path.startswith("encoder/") and not path.startswith(ABOVE):
        below = total - (-1 if number is None else number)
      of_layers.append(layer_decay**below * _product(lr_multipliers, path, number))
    axes = len(value.shape) - path.startswith(LAYERS)
    shape = (len(of_layers),) * path.startswith(LAYERS) + (1,) * axes
    factors[path] = np.reshape(of_layers, shape).astype(np.float32)
  return factors


def _numbers(path: str, value: Any, params: Mapping[str, Any]) -> Sequence[Any]:
  """Returns the layers that a parameter is of, or (None,)."""
  if path.startswith(FIRST):
    return (0,)
  if not path.startswith(LAYERS):
    return (None,)
  first = any(other.startswith(FIRST) for other in params)
  return range(first, first + value.shape[0])


def _product(lr_multipliers: Sequence[tuple[str, float]], path: str, layer: int | None) -> float:
  """Multiplies the factors whose expression matches a path, with or without its layer."""
  return math.prod(factor for pattern, factor in lr_multipliers if _matches(pattern, path, layer))


def _matches(pattern: str, path: str, layer: int | None) -> bool:
  start = FIRST if path.startswith(FIRST) else LAYERS
  numbered = path if layer is None else path.replace(start, f"{LAYERS}{layer}/", 1)
  return bool(re.search(pattern, path) or re.search(pattern, numbered))


def split_frozen(params: dict, lr_multipliers: Sequence[tuple[str, float]]) -> tuple[dict, dict]:
  """Splits parameters into (trainable, frozen) flat dicts by path (`encoder/embeddings/…`).

  A parameter whose elements all have multiplier 0 is frozen, and has no moments; a first layer beside the
  stack counts as one of it, so that the stack's numbers stay as they are.
  """
  flat = traverse_util.flatten_dict(params, sep="/")
  numbers = {path: _numbers(path, value, flat) for path, value in flat.items()}
  for pattern, _ in lr_multipliers:
    if not any(_matches(pattern, path, n) for path in flat for n in numbers[path]):
      raise InputError(
        f"optimizer.lr_multipliers: {pattern!r} matches no parameter; the first "
        f"paths are {sorted(flat)[:5]}"
      )
  factors = multipliers(flat, 1.0, lr_multipliers)
  still = {path for path, factor in factors.items() if not factor.any()}
  if any(path.startswith(LAYERS) and path not in still for path in flat):
    still = {path for path in still if not path.startswith(FIRST)}
  trainable, frozen = {}, {}
  for path, value in flat.items():
    (frozen if path in still else trainable)[path] = value
  return trainable, frozen


def merge(trainable: dict, frozen: dict) -> dict:
  """Undoes `split_frozen`."""
  return traverse_util.unflatten_dict({**trainable, **frozen}, sep="/")
