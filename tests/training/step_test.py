"""The train step, on a model with batch norm, two loss terms, a penalty and a frozen part; over cores."""

import dataclasses
import re
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float
from step_batches import batch, batcher, make, run

from as2jax.data.batches.batch import Batch
from as2jax.data.batches.batcher import stack
from as2jax.layers.pooling import pool
from as2jax.layers.vectors import take
from as2jax.models.crossencoder import CrossEncoder
from as2jax.models.losses import Loss, SoftmaxCrossEntropy, Term
from as2jax.models.system import System
from as2jax.runtime import devices, sharding
from as2jax.runtime.errors import InputError
from as2jax.training import build, optimizers
from as2jax.training import state as states
from as2jax.training.step import gradient_sums, make_train_step, term_norms


@struct.dataclass
class ProbeOutput:
  """Scores of (question, candidate) and the difference of their normalised vectors."""

  scores: Float[Array, "s e"]
  difference: Float[Array, "s e d"]


class Probe(System):
  """Uses everything the loop offers: it proves the loop, not an idea.

  Mean of token vectors → batch norm over real units → dropout → linear map → dot product.
  """

  encoder: nn.Module
  width: int
  dropout: float
  norm: bool = True  # of which micro-batches have other statistics, by design

  score_names: ClassVar[tuple[str, ...]] = ("dot",)

  @nn.compact
  def __call__(self, batch: Batch, *, train: bool) -> ProbeOutput:
    units = pool(self.encoder(batch.tokens, train=train), batch.tokens, batch.units, "mean")
    real = (batch.units.length > 0)[..., None]
    if self.norm:
      norm = nn.BatchNorm(use_running_average=not train, momentum=0.9, name="norm")
      units = norm(units, mask=jnp.broadcast_to(real, units.shape))
    units = nn.Dropout(self.dropout, deterministic=not train)(jnp.where(real, units, 0.0))
    vectors = nn.Dense(self.width, name="map")(units)
    question, candidate = (take(vectors, batch.examples.members[..., k]) for k in range(2))
    return ProbeOutput(jnp.sum(question * candidate, -1), question - candidate)


@dataclasses.dataclass(frozen=True)
class ProbeLoss(Loss):
  """A mean of cross entropies, a scaled sum of distances that fades in, and an L2 penalty."""

  gamma: float
  weight: float

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    labels = batch.examples.labels[..., 0]
    mask = batch.examples.mask
    entropy = nn.softplus(output.scores) - output.scores * labels
    distance = jnp.sum(jnp.square(output.difference), -1) * jnp.minimum(progress, 1.0)
    return {
      "entropy": Term(entropy, mask),
      "distance": Term(distance, mask * labels, "sum", self.gamma),
    }

  def penalty(self, params) -> dict[str, Array]:
    return {"penalty": self.weight * jnp.sum(jnp.square(params["map"]["kernel"]))}


LOSS = ProbeLoss(gamma=0.1, weight=0.01)


def probe(dropout=0.0, **fields):
  encoder = tiny.encoder_module(hidden_dropout=dropout, attention_dropout=dropout)
  return Probe(encoder, width=8, dropout=dropout, **fields)


def host(tree):
  return jax.tree.map(np.asarray, tree)


def test_accumulation_and_shards_give_the_gradient_of_one_batch():
  """The same 16 examples as one batch, as 4 shards, as 4 micro-batches."""
  loss = ProbeLoss(gamma=0.3, weight=0.0)
  gradients = []
  plain = probe(norm=False)
  solo = jax.tree.map(lambda x: x[0], make(plain, LOSS, batch())[1])
  sums = jax.jit(lambda s, b: gradient_sums(plain, loss, s, b, jax.random.key(0), jnp.float32(0.5)))
  for shards, accumulate, examples in ((1, 1, 16), (4, 1, 16), (1, 4, 4), (2, 2, 8)):
    example_batch = batch(shards=shards, accumulate=accumulate, examples=examples)
    values, _, gradient, _ = sums(solo, jax.tree.map(lambda x: x[0], example_batch))
    asked = example_batch.examples.question[example_batch.examples.mask > 0]
    gradients.append((sorted(asked.tolist()), host(values), host(gradient)))
  largest = max(np.abs(g).max() for g in gradients[0][2].values())
  for questions_, values, gradient in gradients[1:]:
    assert questions_ == gradients[0][0]
    for name, value in values.items():
      np.testing.assert_allclose(value, gradients[0][1][name], rtol=2e-5)
    for path, g in gradient.items():
      np.testing.assert_allclose(
        g, gradients[0][2][path], rtol=1e-4, atol=1e-6 * largest, err_msg=path
      )


def test_dropout_depends_on_seed_and_step_alone():
  example_batch = batch()
  mesh, state, step = make(probe(0.3), LOSS, example_batch, name="sgd", rate=0.0)
  losses = []
  for seed in (0, 0, 1):
    state, scalars = run(step, mesh, state, example_batch, seeds=(seed,))
    losses.append(float(scalars["loss"][0]))
    if len(losses) == 1:  # the same step again
      state = state.replace(step=state.step - 1)
  assert losses[0] == losses[1] != losses[2]


def test_seeds_together_equal_each_alone():
  seeds = (3, 8)
  alone = []
  for seed in seeds:
    example_batch = batch((seed,))
    mesh, state, step = make(probe(0.1), LOSS, example_batch, seeds=(seed,), name="sgd", rate=0.1)
    for _ in range(3):
      state, scalars = run(step, mesh, state, example_batch, seeds=(seed,))
    alone.append((host(state.trainable), host(scalars)))
  example_batch = batch(seeds)
  mesh, state, step = make(probe(0.1), LOSS, example_batch, seeds=seeds, name="sgd", rate=0.1)
  for _ in range(3):
    state, scalars = run(step, mesh, state, example_batch, seeds=seeds)
  for i, (trainable, values) in enumerate(alone):
    np.testing.assert_allclose(scalars["loss"][i], values["loss"][0], rtol=1e-5)
    for path, p in trainable.items():
      np.testing.assert_allclose(
        np.asarray(state.trainable[path][i]), p[0], atol=1e-5, err_msg=path
      )


@pytest.mark.slow
def test_a_stopped_seed_keeps_its_state():
  seeds = (0, 1)
  example_batch = batch(seeds)
  mesh, state, step = make(probe(0.1), LOSS, example_batch, seeds=seeds)
  before = host(state)
  state, _ = run(step, mesh, state, example_batch, seeds, active=np.asarray([True, False]))
  for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(host(state))):
    np.testing.assert_array_equal(old[1], new[1])
  assert state.step.tolist() == [1, 0]


@pytest.mark.slow
def test_an_empty_micro_batch_changes_nothing():
  """48 examples in batches of 16, two a step: the last step's second micro-batch is empty."""
  b = batcher(accumulate=2)
  plan = b.plan(b.sampler.blocks(), 0, 0)
  assert plan.steps[-1][1] == (None,)
  pair = stack([b.batch(plan, len(plan) - 1)])
  updates = []
  for example_batch in (pair, jax.tree.map(lambda x: x[:, :1], pair)):
    mesh, state, step = make(probe(), LOSS, example_batch, name="sgd")
    state, scalars = run(step, mesh, state, example_batch)
    updates.append(host((states.variables(state), scalars)))
  for one, other in zip(*map(jax.tree.leaves, updates), strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
  "pretrained, message",
  [
    ({"map/kernel": np.ones((3, 2))}, r"'map/kernel' has shape \(3, 2\); the model has \(16, 8\)"),
    ({"bias": np.ones(3)}, "'bias' .* the model has none of this name"),
  ],
)
def test_pretrained_arrays_fit_the_model(pretrained, message):
  micro = jax.tree.map(lambda x: x[0, 0], batch())
  with pytest.raises(InputError, match=message):
    states.create(
      probe(),
      micro,
      seeds=(0, 1),
      pretrained=pretrained,
      lr_multipliers=(),
      optimizer=optax.sgd(1.0),
      mesh=sharding.make_mesh(devices=jax.devices()[:1]),
    )


def test_a_step_overwrites_its_state_without_copying_it():
  # XLA copies a donated array that is read after it may have been overwritten; a copy of parameters
  # and moments costs a sixth of a step on CPU. Here they are the only arrays of these sizes.
  model = CrossEncoder(tiny.encoder_module(), token="cls", pooler=True, dropout=0.1)
  first = batch(layout="single")
  mesh, state, step = make(model, SoftmaxCrossEntropy(), first)
  sizes = {x.size for x in state.trainable.values() if x.size > 64}
  text = (
    step.lower(
      state,
      sharding.place(first, mesh),
      np.zeros(1, np.uint32),
      np.full(1, 0.5, np.float32),
      np.ones(1, bool),
    )
    .compile()
    .as_text()
  )
  entry = text[text.index("ENTRY") :]
  copied = [
    int(np.prod([int(d) for d in dims.split(",")]))
    for dims in re.findall(r"= f32\[([\d,]+)\]\S* copy\(", entry)
  ]
  assert sizes and not sizes.intersection(copied)


def test_the_gradient_norm_of_each_term_is_that_of_the_term_alone():
  example_batch = batch()
  _, state, _ = make(probe(), LOSS, example_batch)
  one = jax.tree.map(lambda x: x[0], state)
  part = jax.tree.map(lambda x: jnp.asarray(x[0]), example_batch)
  arguments = one, part, jax.random.key(3), jnp.float32(0.5)
  norms = jax.jit(lambda *args: term_norms(probe(), LOSS, *args))(*arguments)
  assert set(norms) == {"gradient_norm_entropy", "gradient_norm_distance"}
  for name in ("entropy", "distance"):
    alone = lambda *args, name=name: {name: LOSS(*args)[name]}
    gradient = jax.jit(lambda *args, alone=alone: gradient_sums(probe(), alone, *args)[2])(
      *arguments
    )
    wanted = optax.tree.norm(gradient)
    np.testing.assert_allclose(norms[f"gradient_norm_{name}"], wanted, rtol=1e-4, err_msg=name)


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
    state, scalars = run(step, mesh, state, stack([batcher.batch(plan, i)]))
    losses.append({name: float(value[0]) for name, value in scalars.items()})
  return losses, jax.tree.map(np.asarray, state.trainable)


@pytest.mark.parametrize(
  "preset,words", [("triplet", ("grouped",)), ("crossencoder", ()), ("cassie", ())]
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
