"""Rows of a batch over the cores of a CPU change no number: whole steps on one device and on two."""

import jax
import numpy as np
import pytest
import tiny

from as2jax.data.batches.batcher import stack
from as2jax.runtime import devices, sharding
from as2jax.training import build, optimizers
from as2jax.training.step import make_train_step

SLOW = pytest.mark.slow


def _after_two_steps(components, mesh):
  config, batcher = components.config, components.train_batcher()
  plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
  optimizer = optimizers.from_config(config.optimizer)
  rate = lambda progress: 1e-2 + 0 * progress
  example = jax.tree.map(lambda x: x[0], batcher.batch(plan, 0))
  state = components.fresh_state(example, (0,), optimizer, mesh)
  step = make_train_step(
    components.model, components.loss, optimizer, rate, mesh=mesh, state=state, seeds=1
  )
  losses = []
  for i in range(2):
    batch = sharding.place(stack([batcher.batch(plan, i)]), mesh)
    one = np.ones(1, np.float32)
    state, scalars = step(state, batch, np.zeros(1, np.uint32), one, one > 0)
    losses.append({name: float(value[0]) for name, value in scalars.items()})
  return losses, jax.tree.map(np.asarray, state.trainable)


@pytest.mark.parametrize(
  "preset,words",
  [
    ("triplet", ("grouped",)),
    pytest.param("crossencoder", (), marks=SLOW),
    pytest.param("cassie", (), marks=SLOW),
  ],
)
def test_two_cores_take_the_steps_of_one(preset, words):
  # An odd number of rows: one of padding is added for the second core.
  config = tiny.config(preset, *words, batch__shards=1, batch__rows=15, optimizer__name="sgd")
  components = build.load(config)
  meshes = (
    sharding.make_mesh(devices=jax.devices()[:1]),
    sharding.mesh_for_batches(config, most_cores=components.most_cores),
  )
  assert [mesh.shape["rows"] for mesh in meshes] == [1, 2]
  (alone, parameters), (together, split) = (_after_two_steps(components, m) for m in meshes)
  for one, two in zip(alone, together, strict=True):
    assert one == pytest.approx(two, rel=1e-5, abs=1e-5)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), parameters, split
  )


def test_cores_hold_no_more_copies_than_half_of_the_memory(monkeypatch):
  components = build.load(tiny.config("triplet"))
  copy = 16 * sum(value.size for value in components.pretrained.values())
  for memory, cores in ((0, 1), (2 * copy, 1), (6 * copy, 3), (7 * copy, 3)):
    monkeypatch.setattr(devices, "memory", lambda memory=memory: memory)
    assert components.most_cores == cores
