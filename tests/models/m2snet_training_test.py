"""M²S-Net through the train step: AdaDelta, batch norm, several seeds.

That shards on two devices share their statistics is in `training/step_parity_test.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_m2snet import LOSS, WORDS, batcher, model

from as2jax.data.batches.batcher import stack
from as2jax.runtime import sharding
from as2jax.training import optimizers
from as2jax.training import state as states
from as2jax.training.step import make_train_step
from configs import trecqa_m2snet


def trainer(net, first, *, seeds=(0,)):
  mesh = sharding.make_mesh(devices=jax.devices()[:1])
  optimizer = optimizers.from_config(trecqa_m2snet.get_config("2").optimizer)
  table = np.random.default_rng(1).normal(size=(WORDS, 6)).astype(np.float32)
  state = states.create(
    net,
    jax.tree.map(lambda x: x[0, 0], first),
    seeds=seeds,
    pretrained={"encoder/embeddings/word": table},
    lr_multipliers=(),
    optimizer=optimizer,
    mesh=mesh,
  )
  step = make_train_step(
    net, LOSS, optimizer, lambda progress: jnp.float32(1), mesh=mesh, state=state, seeds=len(seeds)
  )
  return mesh, state, step


def train(net, steps, *, seeds=(0,), stopped=(), **settings):
  """The state after `steps` steps, as `Trainer` makes them, and the losses `[steps, seed]`."""
  b = batcher(**settings)

  def batch_of(i):
    each = [b.plan(b.sampler.blocks(), seed, i // 2) for seed in seeds]
    return stack([b.batch(plan, i % len(plan)) for plan in each])

  mesh, state, step = trainer(net, batch_of(0), seeds=seeds)
  before, losses = jax.tree.map(np.asarray, states.variables(state)), []
  for i in range(steps):
    active = np.asarray([seed not in stopped for seed in seeds])
    state, scalars = step(
      state,
      sharding.place(batch_of(i), mesh),
      np.asarray(seeds, np.uint32),
      np.zeros(len(seeds), np.float32),
      active,
    )
    losses.append(np.asarray(scalars["loss"]))
  return before, jax.tree.map(np.asarray, states.variables(state)), np.asarray(losses)


def moved(before, after):
  """Whether each parameter and running statistic has another value, by collection."""
  return jax.tree.map(lambda a, b: bool(np.any(a != b)), before, after)


def test_one_step_moves_every_parameter_and_statistic():
  actual = moved(*train(model("euc", dropout=0.1), 1)[:2])
  assert not {"grid/U", "grid/B"} & set(actual["trainable"])
  assert (
    set(actual["mutables"]) == {"batch_stats"} and len(jax.tree.leaves(actual["mutables"])) == 4
  )
  assert all(jax.tree.leaves(actual)), actual


def test_a_handful_is_overfitted():
  before, after, losses = train(model("2"), 60, examples=16)
  assert losses[-1, 0] < 0.1 < 0.5 < losses[0, 0]
  actual = moved(before, after)
  assert {"grid/U", "grid/B"} <= set(actual["trainable"]) and all(jax.tree.leaves(actual)), actual


@pytest.mark.slow  # as `test_seeds_together_equal_each_alone` of the train step, for ten steps
def test_seeds_together_are_each_alone_after_ten_steps():
  net, seeds = model("4", dropout=0.5), (3, 8)
  _, together, losses = train(net, 10, seeds=seeds)
  for i, seed in enumerate(seeds):
    _, alone, own = train(net, 10, seeds=(seed,))
    np.testing.assert_allclose(losses[:, i], own[:, 0], atol=1e-5)
    for a, b in zip(*map(jax.tree.leaves, (together, alone)), strict=True):
      np.testing.assert_allclose(a[i], b[0], rtol=1e-5, atol=1e-5)
  assert np.abs(losses[:, 0] - losses[:, 1]).max() > 1e-3


def test_a_stopped_seed_keeps_its_statistics():
  before, after, _ = train(model("2"), 1, seeds=(0, 1), stopped=(1,))
  for old, new in zip(*map(jax.tree.leaves, (before, after))):
    np.testing.assert_array_equal(old[1], new[1])
  assert np.any(
    before["mutables"]["batch_stats"]["norm_0"]["mean"][0]
    != after["mutables"]["batch_stats"]["norm_0"]["mean"][0]
  )
