"""Siamese, triplet and cross-encoder: scores by vectors, NaN, sizes; their steps are PyTorch's."""

import jax
import jax.numpy as jnp
import numpy as np
import step_batches
import tiny

from as2jax.data.inputs.document_position import DocumentPosition
from as2jax.layers import vectors
from as2jax.models import biencoder
from as2jax.models.asbert import Siamese, Triplet
from as2jax.models.biencoder import SentenceBert
from as2jax.models.crossencoder import CrossEncoder


def make(kind, encoder):
  if kind == "triplet":
    return Triplet(encoder, "mean", "")  # its first score: −‖u − v‖
  if kind == "siamese":
    return Siamese(encoder, "max", "head", "concat_diff")
  return CrossEncoder(encoder, "cls", True, 0.1)


def batch(kind):
  """All examples of three questions in one micro-batch."""
  layout = {"triplet": "triplets", "siamese": "pairs", "cross": "single"}[kind]
  whole = step_batches.batch(layout=layout, examples=12, count=3, sampler="ordered")
  return jax.tree.map(lambda x: jnp.asarray(x[0, 0]), whole)


def test_scores_at_training_are_those_at_ranking():
  for kind in ("triplet", "siamese"):
    model = make(kind, tiny.encoder_module())
    example_batch = batch(kind)
    variables = tiny.init(model, example_batch)
    units = tiny.apply(model, variables, example_batch, method=type(model).encode).units[0]
    pair = tuple(units[example_batch.examples.members[0, :, k]] for k in range(2))
    compared = tiny.apply(model, variables, pair, method=type(model).compare)
    scores = tiny.apply(model, variables, example_batch).scores[0]
    scores = scores[..., 0] if kind == "triplet" else scores
    np.testing.assert_allclose(compared[model.ranking_score], scores, atol=1e-6)


def test_a_linear_layer_beside_a_cosine_begins_as_nothing():
  examples, scores = batch("cross"), {}
  for head in ("cosine", "cosine_linear"):
    model = CrossEncoder(tiny.encoder_module(), "cls", False, 0.1, head=head, token_types="zero")
    variables = tiny.init(model, examples)
    output = tiny.apply(model, variables, examples)
    np.testing.assert_array_equal(output.scores, output.logits[..., 1] - output.logits[..., 0])
    scores[head] = np.asarray(output.scores)
  np.testing.assert_array_equal(scores["cosine"], scores["cosine_linear"])
  assert (np.abs(scores["cosine"]) <= 20).all() and np.ptp(scores["cosine"]) > 1e-3


def test_a_weight_of_places_begins_as_nothing_and_learns_the_order_of_a_document():
  examples, networks = batch("cross"), {}
  for position in (False, True):
    model = CrossEncoder(tiny.encoder_module(), "cls", True, 0.0, position=position)
    networks[position] = model, tiny.init(model, examples)
  placed, variables = networks[True]
  outputs = (tiny.apply(*network, examples) for network in networks.values())
  jax.tree.map(np.testing.assert_array_equal, *outputs)
  # All texts are the same: nothing but its place tells a candidate from another. The first is right.
  alike = examples.replace(tokens=examples.tokens.replace(ids=jnp.ones_like(examples.tokens.ids)))
  sign = 1 - 2 * (examples.examples.inputs[DocumentPosition.name] == 0)
  score = lambda values: placed.apply(values, alike, train=False).scores
  loss = lambda values: jnp.mean(jax.nn.softplus(sign * score(values)) * examples.examples.mask)
  gradient = jax.jit(jax.grad(loss))
  for _ in range(20):
    variables = jax.tree.map(lambda value, g: value - 0.3 * g, variables, gradient(variables))
  scores = np.asarray(score(variables))[0, : 3 * 4].reshape(3, 4)
  assert variables["params"]["position"] < -0.1 and (np.diff(scores) < -0.03).all()


def test_distances_are_safe_at_zero():
  zero = jnp.zeros((1, 4))
  for f in (lambda x: vectors.norm(x).sum(), lambda x: vectors.cosine(x, zero).sum()):
    assert f(zero) == 0
    np.testing.assert_array_equal(jax.grad(f)(zero), 0)
  u, v = jnp.asarray([[3.0, 4.0]]), jnp.asarray([[4.0, 3.0]])
  np.testing.assert_allclose(vectors.cosine(u, v), [24 / 25], rtol=1e-6)


def test_nan_is_no_distance():
  """As the norm 0 it would be the smallest distance, and so the best possible answer."""
  bad, good = jnp.asarray([1.0, jnp.nan]), jnp.ones(2)
  scores = make("triplet", tiny.encoder_module()).compare((good, bad), train=False)
  assert set(scores) == set(biencoder.DISTANCES)
  assert all(np.isnan(value) for value in scores.values())
  assert np.isnan(vectors.norm(bad)) and vectors.norm(jnp.asarray([jnp.inf, 0])) == jnp.inf


def test_slots_without_a_text_have_no_vector_in_spite_of_biases():
  model = SentenceBert(
    encoder=tiny.encoder_module(),
    pooling=("mean", "cls"),
    score="cosine",
    dense=((7, "tanh", True), (6, "gelu", False), (4, "identity", True)),
    normalize=True,
  )
  example_batch = jax.tree.map(lambda x: jnp.asarray(x[0, 0]), step_batches.batch())
  variables = tiny.random_variables(model, example_batch)
  units = tiny.apply(model, variables, example_batch, method=SentenceBert.encode).units
  actual, used = np.asarray(units), np.asarray(example_batch.units.id) >= 0
  assert used.any() and not used.all() and not actual[~used].any()
  np.testing.assert_allclose(np.linalg.norm(actual[used], axis=-1), 1, rtol=1e-5)
