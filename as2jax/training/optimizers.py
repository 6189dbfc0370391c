"""Optimisers, schedules over progress, and which parameters they move."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import traverse_util

from as2jax.runtime.errors import InputError

SCHEDULES = ("constant", "linear")


def schedule(name: str, *, rate: float, warmup: float, epochs: float) -> Callable:
  """Learning rate as a function of progress (examples seen / examples of an epoch).

  Args:
    name: `constant` after the warm-up, or `linear`: down to 0 at the end of the last epoch.
    rate: the peak.
    warmup: part of one epoch's examples over which the rate rises linearly from 0.
    epochs: length of the run, for `linear`.
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
  """The `direction` that a config's section `optimizer` describes."""
  keys = ("b1", "b2", "eps", "clip_norm", "weight_decay", "frozen_layers", "layer_decay", "rates")
  return direction(section["name"], **{key: section[key] for key in keys})


def direction(name: str, *, b1: float, b2: float, eps: float, clip_norm: float,
              weight_decay: float, frozen_layers: int, layer_decay: float,
              rates: Sequence[tuple[str, float]]) -> optax.GradientTransformation:
  """The update's direction, before the rate: clipping to a global norm, the rule, rate factors.

  Args:
    name: `adam` or `adadelta` (b2 is then its ρ).
    clip_norm: largest global norm of the gradient; 0 does not clip.
    weight_decay: decoupled, on matrices only; 0 leaves it out.
    frozen_layers, layer_decay, rates: see `rate_factors`. What has factor 0 has no part in the
      norm that is clipped either.
  """
  rules = {"adam": lambda: optax.scale_by_adam(b1=b1, b2=b2, eps=eps),
           "adadelta": lambda: optax.scale_by_adadelta(rho=b2, eps=eps),
           "sgd": optax.identity}
  if name not in rules:
    raise InputError(f"optimizer.name = {name!r}: use one of {tuple(rules)}")
  chain = [_clip(clip_norm)] if clip_norm else []
  chain.append(rules[name]())
  factors = None
  if frozen_layers or layer_decay != 1 or rates:
    factors = lambda params: rate_factors(params, frozen_layers, layer_decay, rates)
    chain.insert(0, _scale_by(lambda p: {k: np.sign(f) for k, f in factors(p).items()}))
  if weight_decay:
    matrices = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
    chain.append(optax.add_decayed_weights(weight_decay, mask=matrices))
  if factors:
    chain.append(_scale_by(factors))
  return optax.chain(*chain)


def _clip(largest: float) -> optax.GradientTransformation:
  """Scales a gradient whose global norm exceeds `largest` down to it.

  One factor for all elements, where optax's `clip_by_global_norm` selects between two arrays: XLA
  then copies parameters and moments before it overwrites them, and an update takes four times as
  long on CPU.
  """
  def update(updates, params):
    del params
    norm = optax.tree.norm(updates)
    factor = largest / jnp.maximum(norm, largest)
    return jax.tree.map(lambda u: u * factor, updates)

  return optax.stateless(update)


def rate_factors(params: Mapping[str, Any], frozen_layers: int, layer_decay: float,
                 rates: Sequence[tuple[str, float]]) -> dict[str, np.ndarray]:
  """What the learning rate of each parameter (by path) is multiplied with.

  The layers of a transformer are stacked on the first axis of `encoder/layers/…`, so a factor is an
  array that broadcasts from there.

  Args:
    frozen_layers: so many first layers, and the embeddings below them, have factor 0.
    layer_decay: layer l of L (from 0) has layer_decay^(L - l), the embeddings layer_decay^(L + 1),
      everything above the encoder 1 (Clark et al. 2020, ELECTRA).
    rates: (regular expression, factor): of every path in which it is found, multiplied on.

  Raises:
    InputError: no layers to freeze or decay, more frozen layers than there are, a pattern that
      matches no parameter.
  """
  sizes = {v.shape[0] for k, v in params.items() if k.startswith("encoder/layers/")}
  total = max(sizes, default=0)
  if (frozen_layers or layer_decay != 1) and not total:
    raise InputError("optimizer.frozen_layers and optimizer.layer_decay: no encoder with a stack of "
                     "trainable layers is there; set them to 0 and 1")
  if frozen_layers > total:
    raise InputError(f"optimizer.frozen_layers = {frozen_layers}: the encoder has {total} layers")
  depth = np.arange(total)
  of_layers = np.where(depth < frozen_layers, 0, layer_decay ** (total - depth))
  below = 0.0 if frozen_layers else layer_decay ** (total + 1)
  factors = {}
  for path, value in params.items():
    factor = np.ones((1,) * value.ndim)
    if path.startswith("encoder/layers/"):
      factor = of_layers.reshape(-1, *(1,) * (value.ndim - 1))
    elif path.startswith("encoder/"):
      factor = factor * below
    factors[path] = factor
  for pattern, scale in rates:
    matched = [path for path in params if re.search(pattern, path)]
    if not matched:
      raise InputError(f"optimizer.rates: {pattern!r} matches no trainable parameter; the first "
                       f"paths are {sorted(params)[:5]}")
    for path in matched:
      factors[path] = factors[path] * scale
  return {path: factor.astype(np.float32) for path, factor in factors.items()}


def _scale_by(factors: Callable[[Mapping], Mapping]) -> optax.GradientTransformation:
  """Multiplies updates with constants that depend on the parameters' paths and shapes alone."""
  def update(updates, params):
    constants = factors(params)
    return {k: u * jnp.broadcast_to(constants[k], u.shape) for k, u in updates.items()}

  return optax.stateless(update)


def no_optimizer() -> optax.GradientTransformation:
  """For states that only rank: keeps no moments."""
  return optax.identity()


def split_frozen(params: dict, freeze: Sequence[str]) -> tuple[dict, dict]:
  """Splits parameters into (trainable, frozen) flat dicts by path (`encoder/embeddings/…`).

  Args:
    freeze: regular expressions, searched in the path; each must match something.

  Raises:
    InputError: a pattern that matches no parameter.
  """
  flat = traverse_util.flatten_dict(params, sep="/")
  for pattern in freeze:
    if not any(re.search(pattern, path) for path in flat):
      raise InputError(f"optimizer.freeze: {pattern!r} matches no parameter; the first paths are "
                       f"{sorted(flat)[:5]}")
  frozen = {k: v for k, v in flat.items() if any(re.search(p, k) for p in freeze)}
  return {k: v for k, v in flat.items() if k not in frozen}, frozen


def merge(trainable: dict, frozen: dict) -> dict:
  """Undoes `split_frozen`."""
  return traverse_util.unflatten_dict({**trainable, **frozen}, sep="/")
