"""Cross-VAEs through the train step: every parameter moves, a few pairs are learnt by heart."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from tiny_cross_vae import MARKS, batch, batcher, loss, model, run

from as2jax.runtime import sharding
from as2jax.training import optimizers
from as2jax.training import state as states
from as2jax.training.step import make_train_step
from configs import squad_cross_vae


@functools.cache
def trained(net, steps, *, rate=1e-2, devices=1, progress=10.0, **settings):
  """(parameters before, after, losses) of `steps` steps on one batch."""
  b = batcher(**settings)
  example_batch = b.batch(b.plan(b.sampler.blocks(), 0, 0), 0)
  mesh = sharding.make_mesh(devices=jax.devices()[:devices])
  optimizer = optimizers.from_config(squad_cross_vae.get_config().optimizer)
  state = states.create(
    net,
    jax.tree.map(lambda x: x[0], example_batch),
    seeds=(0,),
    pretrained={},
    lr_multipliers=(),
    optimizer=optimizer,
    mesh=mesh,
  )
  step = make_train_step(
    net, loss(beta=0.01), optimizer, lambda _: jnp.float32(rate), mesh=mesh, state=state, seeds=1
  )
  before = jax.tree.map(np.asarray, states.variables(state))["trainable"]
  placed, losses = sharding.place(jax.tree.map(lambda x: x[None], example_batch), mesh), []
  for _ in range(steps):
    state, scalars = step(
      state, placed, np.zeros(1, np.uint32), np.full(1, progress, np.float32), np.ones(1, bool)
    )
    losses.append(float(scalars["loss"][0]))
  assert step._cache_size() == 1
  after = jax.tree.map(np.asarray, states.variables(state))["trainable"]
  return before, after, losses, jax.tree.map(lambda x: np.asarray(x)[0], state.params)


def test_a_pair_learnt_by_heart_is_generated():
  """Answers from questions, the twins of one answer alike; and all parameters have moved."""
  net = model("cross", latent_size=8, decoder_size=16, hidden_size=8)
  before, after, losses, params = trained(net, 250, rate=2e-2)
  assert losses[-1] < 0.2 * losses[0]
  assert all(np.any(value != after[path]) for path, value in before.items())
  example_batch = batch()
  z = run(net, params, example_batch).question.mean[0]
  sides = []

  @jax.jit
  def generate(params, z):
    side, words = net.apply({"params": params}, z, "question", 12, method="generate")
    sides.append(side)
    return words

  words = generate(params, z)
  assert sides == ["answer"]
  place = example_batch.units.row * example_batch.tokens.ids.shape[2] + example_batch.units.start
  flat = np.asarray(example_batch.tokens.ids[0]).ravel()
  for e, unit in enumerate(np.asarray(example_batch.examples.members[0, :, 1])):
    begin, length = int(place[0, unit]), int(example_batch.units.length[0, unit])
    text = flat[begin + 1 : begin + length - 1]
    assert flat[begin] == MARKS[0] and flat[begin + length - 1] == MARKS[1]
    np.testing.assert_array_equal(words[e], np.pad(text, (0, 12 - len(text))))
