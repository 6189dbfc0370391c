"""Cached gradients of in-batch losses: those of one large batch, at less memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from ml_collections import ConfigDict
from step_batches import batch, make, run

from as2jax.evaluation.predict import over_seeds
from as2jax.models.asbert import Siamese
from as2jax.models.biencoder import BiEncoder
from as2jax.models.cross_vae_loss import CrossVAELoss
from as2jax.models.losses import BinaryCrossEntropy
from as2jax.models.ranking_losses import InBatchSoftmax, ListSoftmax
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.training import build, optimizers
from as2jax.training import step as steps
from as2jax.training.step import differentiate

LOSS = InBatchSoftmax(20.0, "cosine", True, 1e9)
SEED = 3
KEY = jax.random.fold_in(jax.random.key(SEED), 0)  # of the first step


def biencoder(dropout=0.0):
  return BiEncoder(
    tiny.encoder_module(hidden_dropout=dropout, attention_dropout=dropout), "mean", "cosine"
  )


def gradient_of(model, loss=LOSS):
  """(state, batch) → (gradient by path, new mutables, scalars) of a step, with a seed axis of one."""
  return over_seeds(
    lambda s, b: differentiate(model, loss, s, b, jnp.uint32(SEED), jnp.float32(0.5)), 1
  )


def gradient(model, example_batch, loss=LOSS, devices=1):
  """(scalars, gradient by path) of the first seed's step."""
  mesh, state, _ = make(model, loss, example_batch, devices=devices, name="sgd")
  actual, _, scalars = jax.jit(gradient_of(model, loss))(state, sharding.place(example_batch, mesh))
  return jax.tree.map(lambda x: np.asarray(x[0]), (scalars, actual))


def assert_same(actual, expected):
  (values, gradients), (right, wanted) = actual, expected
  largest = max(float(jnp.abs(g).max()) for g in wanted.values())
  assert largest > 1e-3 and values.keys() == right.keys()
  for name, value in values.items():
    np.testing.assert_allclose(value, right[name], rtol=1e-5)
  for path, g in gradients.items():
    np.testing.assert_allclose(g, wanted[path], atol=1e-5 * largest, rtol=1e-5, err_msg=path)


@pytest.mark.parametrize(
  "similarity", ["cosine", pytest.param("euclidean", marks=pytest.mark.long)]
)
def test_parts_give_the_gradient_of_one_batch(similarity):
  """The same 16 examples as one batch, and as 2 micro-batches of 2 shards."""
  loss = InBatchSoftmax(2.0, similarity, True, 0.3)
  whole = gradient(biencoder(), batch(), loss)
  parts = batch(shards=2, accumulate=2, examples=8)
  assert_same(gradient(biencoder(), parts, loss), whole)


def test_both_passes_have_the_same_dropout():
  """With dropout, too, it is the gradient of the loss of what the first pass encoded."""
  model, example_batch = biencoder(0.3), batch(accumulate=2, examples=8)
  solo = jax.tree.map(lambda x: x[0], make(model, LOSS, example_batch)[1])
  micro = jax.tree.map(lambda x: jnp.asarray(x[0]), example_batch)

  def direct(trainable):
    params = {"params": optimizers.merge(trainable, solo.frozen)}
    encode = lambda part, i: (
      model.apply(
        params, part, train=True, method="encode", rngs={"dropout": jax.random.fold_in(KEY, i)}
      ).units
    )
    parts = [encode(jax.tree.map(lambda x, i=i: x[i], micro), i) for i in range(2)]
    whole = steps._merged(micro)
    units = steps._merged(jnp.stack(parts))
    output = model.apply(params, units, whole, train=True, method="output_of")
    terms = LOSS(output, whole, 0.5)
    return sum(jnp.sum(t.values * t.weights) / jnp.sum(t.weights) for t in terms.values())

  wanted = jax.jit(jax.grad(direct))(solo.trainable)
  _, actual = gradient(model, example_batch)
  largest = max(float(jnp.abs(g).max()) for g in wanted.values())
  for path, g in actual.items():
    np.testing.assert_allclose(g, wanted[path], atol=1e-5 * largest, rtol=1e-5, err_msg=path)
  other = gradient(biencoder(), example_batch)[1]
  assert any(np.abs(actual[p] - other[p]).max() > 1e-2 * largest for p in actual)  # dropout is on


@pytest.mark.slow
def test_one_device_and_two_take_the_same_step():
  example_batch, actual = batch(shards=2, accumulate=2, examples=8), []
  for devices in (1, 2):
    options = {"devices": devices, "name": "sgd", "rate": 0.1, "clip": 0.0}
    mesh, state, step = make(biencoder(0.1), LOSS, example_batch, **options)
    state, scalars = run(step, mesh, state, example_batch)
    actual.append(jax.tree.map(np.asarray, (state.trainable, scalars)))
  for one, other in zip(*map(jax.tree.leaves, actual), strict=True):
    np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)


def loaded(model, loss, **overrides):
  """The parts of a run that accumulates two batches a step."""
  config = tiny.config("fast", batch__accumulate=2, batch__sampler="paper", batch__examples=8)
  with config.unlocked():
    config.loss = ConfigDict(loss)
    config.model = ConfigDict({**config.model.to_dict(), **model})
  return build.load(config)


IN_BATCH = {
  "name": "in_batch_softmax",
  "scale": 20.0,
  "similarity": "cosine",
  "symmetric": False,
  "false_negative_margin": 1e9,
}


def test_accumulation_without_vectors_is_refused_before_training():
  assert loaded({}, IN_BATCH).loss.whole_batch
  siamese = {"name": "siamese", "combine": "concat_diff"}
  with pytest.raises(InputError, match="'in_batch_softmax' does not fit model.name = 'siamese'"):
    loaded(siamese, IN_BATCH)
  parts = loaded(siamese, {"name": "bce"})  # other losses are sums over examples
  with pytest.raises(
    InputError, match="batch.accumulate = 2: loss.name = 'bce' compares all texts"
  ):
    steps.check_accumulation(parts.config, parts.model, LOSS)
  assert CrossVAELoss.whole_batch  # its negatives, too, are all of the batch
  assert not ListSoftmax(1.0).whole_batch and not BinaryCrossEntropy().whole_batch
  assert not Siamese(None, "mean", "cosine", "concat").scores_by_vectors


def test_running_statistics_cannot_be_cached():
  example_batch = batch(accumulate=2, examples=8)
  solo = jax.tree.map(lambda x: x[0], make(biencoder(), LOSS, example_batch)[1])
  solo = solo.replace(mutables={"batch_stats": {"mean": jnp.zeros(2)}})
  with pytest.raises(ValueError, match="running statistics twice"):
    differentiate(biencoder(), LOSS, solo, jax.tree.map(lambda x: x[0], example_batch), SEED, 0.5)
