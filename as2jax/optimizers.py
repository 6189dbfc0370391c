"""Optimisers, schedules over progress, and which parameters they move."""

import re
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import optax
from flax import traverse_util

from as2jax.errors import InputError

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


def direction(name: str, *, b1: float, b2: float, eps: float, clip_norm: float,
              weight_decay: float) -> optax.GradientTransformation:
  """The update's direction, before the rate: clipping to a global norm, then the rule.

  Args:
    name: `adam` or `adadelta` (b2 is then its ρ).
    clip_norm: largest global norm of the gradient; 0 does not clip.
    weight_decay: decoupled, on matrices only; 0 leaves it out.
  """
  rules = {"adam": lambda: optax.scale_by_adam(b1=b1, b2=b2, eps=eps),
           "adadelta": lambda: optax.scale_by_adadelta(rho=b2, eps=eps),
           "sgd": optax.identity}
  if name not in rules:
    raise InputError(f"optimizer.name = {name!r}: use one of {tuple(rules)}")
  chain = [optax.clip_by_global_norm(clip_norm)] if clip_norm else []
  chain.append(rules[name]())
  if weight_decay:
    matrices = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
    chain.append(optax.add_decayed_weights(weight_decay, mask=matrices))
  return optax.chain(*chain)


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
