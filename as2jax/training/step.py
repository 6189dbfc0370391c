"""The train step: forward pass, loss, gradient and update, jitted with shardings."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax.sharding import Mesh

from as2jax.layers.dense import norm
from as2jax.models.losses import Loss, Term
from as2jax.runtime import sharding
from as2jax.training import optimizers
from as2jax.training.state import TrainState, choose, over_seeds


def _sums(terms: dict[str, Term]) -> dict[str, tuple[jax.Array, jax.Array]]:
  """Returns numerator and denominator of each term over all shards of a micro-batch, in float32.

  A `sum` has denominator 0, which `_divide` takes as 1, so that denominators can simply be added.
  """
  sums = {}
  for name, term in terms.items():
    if term.reduction not in ("sum", "mean"):
      raise ValueError(f"loss term {name!r}: reduction {term.reduction!r} is neither sum nor mean")
    weights = jnp.broadcast_to(term.weights, term.values.shape).astype(jnp.float32)
    # `where`, because a masked value may be anything, and 0·nan is nan.
    values = jnp.where(weights != 0, term.values.astype(jnp.float32), 0.0)
    denominator = jnp.sum(weights) if term.reduction == "mean" else jnp.zeros(())
    sums[name] = jnp.sum(values * weights), denominator
  return sums


def _divide(numerator, denominator):
  return numerator / jnp.where(denominator == 0, 1.0, denominator)


def _terms(
  model: nn.Module,
  loss: Loss,
  state: TrainState,
  trainable: Any,
  micro: Any,
  mutables: Any,
  key: jax.Array,
  progress: jax.Array,
) -> tuple[dict[str, Term], Any]:
  """Returns the terms of a micro-batch `[shard, …]`, and the mutables after it."""
  variables = {"params": optimizers.merge(trainable, state.frozen), **mutables}
  rngs = {"dropout": key}
  output, new = model.apply(variables, micro, train=True, mutable=list(mutables), rngs=rngs)
  return loss(output, micro, progress), new


def term_norms(
  model: nn.Module, loss: Loss, state: TrainState, batch: Any, key: jax.Array, progress: jax.Array
) -> dict[str, jax.Array]:
  """Returns the norm of each counted term's gradient, scale included: `gradient_norm_<term>`.

  Each term costs one more backward pass. `batch` is one micro-batch, `[1, shard, …]`.
  """
  micro = jax.tree.map(lambda x: x[0], batch)
  key = jax.random.fold_in(key, 0)

  def values(trainable):
    terms, _ = _terms(model, loss, state, trainable, micro, state.mutables, key, progress)
    counted = {name: term for name, term in terms.items() if term.scale}
    scaled = {}
    for name, (numerator, denominator) in _sums(counted).items():
      mean = _divide(numerator, jax.lax.stop_gradient(denominator))
      scaled[name] = counted[name].scale * mean
    return scaled

  by_term, pull = jax.vjp(values, state.trainable)
  norms = {}
  for name in by_term:
    alone = {other: jnp.float32(other == name) for other in by_term}
    norms[f"gradient_norm_{name}"] = norm(pull(alone)[0])
  return norms


def gradient_sums(
  model: nn.Module, loss: Loss, state: TrainState, batch: Any, key: jax.Array, progress: jax.Array
):
  """Computes loss terms and their gradient over the micro-batches `[accumulate, shard, …]` of a step.

  The result is that of one large batch (running statistics aside, which each micro-batch updates
  in turn): denominators are added over all micro-batches before anything is divided.

  Returns:
    (value of each term, scale of each term, gradient by path, mutables)

  """
  scales: dict[str, float] = {}

  def sums(trainable, micro, mutables, number):
    part = jax.random.fold_in(key, number)
    terms, new = _terms(model, loss, state, trainable, micro, mutables, part, progress)
    scales.update({name: term.scale for name, term in terms.items()})
    return _sums(terms), new

  def scaled(trainable, micro, mutables, number, denominators):
    parts, new = sums(trainable, micro, mutables, number)
    values = {}
    for name, (numerator, own) in parts.items():
      denominator = own if denominators is None else denominators[name]
      values[name] = _divide(numerator, jax.lax.stop_gradient(denominator))
    total = sum(scales[name] * value for name, value in values.items() if scales[name])
    return total, (values, new)

  gradient_of = jax.grad(scaled, has_aux=True)
  steps = jax.tree.leaves(batch)[0].shape[0]
  if steps == 1:
    micro = jax.tree.map(lambda x: x[0], batch)
    gradient, (values, mutables) = gradient_of(state.trainable, micro, state.mutables, 0, None)
    return values, scales, gradient, mutables

  def denominators_of(item):
    # XLA drops the forward pass here wherever the weights depend on the batch alone.
    parts, _ = sums(state.trainable, item[1], state.mutables, item[0])
    return {name: denominator for name, (_, denominator) in parts.items()}

  items = (jnp.arange(steps), batch)
  denominators = jax.tree.map(lambda d: d.sum(0), jax.lax.map(denominators_of, items))

  def accumulate(carry, item):
    total, before = carry
    gradient, (values, after) = gradient_of(state.trainable, item[1], before, item[0], denominators)
    # At the end of an epoch a micro-batch may be empty: its statistics would be 0/0.
    real = jnp.any(item[1].examples.mask > 0)
    keep = lambda new, old: jax.tree.map(lambda n, o: jnp.where(real, n, o), new, old)
    total = keep(jax.tree.map(jnp.add, total, gradient), total)
    return (total, keep(after, before)), keep(values, jax.tree.map(jnp.zeros_like, values))

  zeros = jax.tree.map(jnp.zeros_like, state.trainable)
  (gradient, mutables), values = jax.lax.scan(accumulate, (zeros, state.mutables), items)
  return jax.tree.map(lambda v: v.sum(0), values), scales, gradient, mutables


def differentiate(
  model: nn.Module,
  loss: Loss,
  state: TrainState,
  batch: Any,
  seed: jax.Array,
  progress: jax.Array,
  norms: bool,
):
  """Computes the gradient of one seed's step, penalties included.

  Args:
    state: the state without the seed axis.
    batch: `[accumulate, shard, …]`.
    progress: examples seen / examples of an epoch, before this step.
    norms: whether the scalars have those of `term_norms`, too.

  Returns:
    The gradient by path, the new mutables, and scalars: `loss`, each term, each penalty.

  """
  key = jax.random.fold_in(jax.random.key(seed), state.step)
  more = term_norms(model, loss, state, batch, key, progress) if norms else {}
  values, scales, gradient, mutables = gradient_sums(model, loss, state, batch, key, progress)

  def penalty(trainable):
    terms = loss.penalty(optimizers.merge(trainable, state.frozen))
    return sum(terms.values(), jnp.zeros(())), terms

  extra, penalties = jax.grad(penalty, has_aux=True)(state.trainable)
  gradient = jax.tree.map(jnp.add, gradient, extra)
  total = sum(scales[name] * v for name, v in values.items()) + sum(penalties.values())
  return gradient, mutables, {"loss": total, **values, **penalties, **more}


def update(
  optimizer: optax.GradientTransformation,
  rate: Callable,
  state: TrainState,
  gradient: dict[str, jax.Array],
  mutables: Any,
  progress: jax.Array,
) -> tuple[TrainState, dict[str, jax.Array]]:
  """Returns the updated state of one seed, and scalars: `gradient_norm`, `learning_rate`."""
  direction, opt_state = optimizer.update(gradient, state.opt_state, state.trainable)
  learning_rate = rate(progress)
  trainable = jax.tree.map(lambda p, u: p - learning_rate * u, state.trainable, direction)
  new = dataclasses.replace(
    state, step=state.step + 1, trainable=trainable, opt_state=opt_state, mutables=mutables
  )
  return new, {"learning_rate": learning_rate, "gradient_norm": norm(gradient)}


def make_train_step(
  model: nn.Module,
  loss: Loss,
  optimizer: optax.GradientTransformation,
  rate: Callable,
  *,
  mesh: Mesh,
  state: TrainState,
  seeds: int,
  norms: bool = False,
):
  """Makes the jitted `(state, batch, seed, progress, active) → (state, scalars)`, with a seed axis.

  `batch` is `[seed, accumulate, shard, …]`, the others `[seed]`. A seed that is not active, because
  it stopped early, keeps its state. `state` provides the shardings; its buffers are donated. With
  `norms` the scalars have those of `term_norms`, too.
  """
  compute = over_seeds(lambda *args: differentiate(model, loss, *args, norms=norms), seeds)
  # `vmap` over the seed axis even where its length is one: with arrays of the state's own shape XLA
  # updates in place, whereas after a reshape it copies the state first (a sixth of a step on CPU).
  move = jax.vmap(lambda *args: update(optimizer, rate, *args))

  def step(state, batch, seed, progress, active):
    gradient, mutables, scalars = compute(state, batch, seed, progress)
    new, more = move(state, gradient, mutables, progress)
    if seeds > 1:
      new = choose(active, new, state)
    return new, {**scalars, **more}

  shardings = jax.tree.map(lambda x: x.sharding, state)
  every = sharding.replicated(mesh)
  return jax.jit(
    step,
    donate_argnums=0,
    out_shardings=(shardings, every),
    in_shardings=(shardings, None, every, every, every),  # None: as `sharding.place` put the batch
  )
