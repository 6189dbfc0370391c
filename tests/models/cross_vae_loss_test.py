"""The loss of Cross-VAEs: closed forms, annealing, negatives by hand; its step is PyTorch's."""

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_cross_vae import batch, loss, model, params, run

from as2jax.layers.pooling import redundancy
from as2jax.models.cross_vae_loss import annealed, drawn, kl_of_dimensions, pairs_of


def mean(term):
  values, weights = np.broadcast_arrays(np.asarray(term.values), np.asarray(term.weights))
  assert term.reduction == "mean"
  return float((values * weights).sum() / weights.sum())


def test_the_redundancy_of_hops_by_hand():
  a = np.random.default_rng(0).random((3, 2, 5))
  wanted = [np.square(hops @ hops.T - np.eye(2)).sum() for hops in a]
  np.testing.assert_allclose(redundancy(jnp.asarray(a, jnp.float32)), wanted, rtol=1e-5)


def test_annealing_by_hand():
  """100 epochs: 0.02 an epoch, 1 from epoch 50 on."""
  for progress, share in ((0, 0), (1, 0.02), (12.5, 0.25), (50, 1), (99, 1)):
    assert float(annealed(jnp.float32(progress), 100)) == pytest.approx(share)


@pytest.mark.parametrize("negatives, shards", [(0, 1), (1, 1), (0, 2), (2, 2)])
def test_positives_and_negatives_by_brute_force(negatives, shards):
  example_batch = batch(negatives=negatives, examples=26, shards=shards)
  examples = example_batch.examples
  aligned = examples.mask * (examples.labels[..., 0] == 1)
  positive, negative = map(np.asarray, pairs_of(example_batch, aligned))
  ids = [
    np.take_along_axis(
      np.asarray(example_batch.units.id), np.asarray(examples.members[..., k]), 1
    ).ravel()
    for k in (0, 1)
  ]
  real, label = np.asarray(examples.mask).ravel() > 0, np.asarray(examples.labels).ravel()
  assert real.sum() == 8 * (1 + negatives) and not real.all()
  n, shared = len(real), 0
  for i in range(n):
    for j in range(n):
      plus, minus = (x.reshape(n, n)[i, j] for x in (positive, negative))
      if not (real[i] and real[j]):
        assert plus == minus == 0
      elif i == j:
        assert (plus, minus) == (label[i], 1 - label[i])
      else:
        same = ids[0][i] == ids[0][j] or ids[1][i] == ids[1][j]
        shared += ids[1][i] == ids[1][j]
        assert (plus, minus) == (0, 0 if same else 1)
  assert shared == 4  # two answers of two questions each, either way


def test_drawn_negatives_are_k_of_the_allowed():
  mask = jnp.asarray([[[1.0, 1, 0, 1], [0, 0, 0, 1]]])
  draw = jnp.asarray([[[0.2, 0.9, 0.99, 0.5], [0.9, 0.8, 0.7, 0.1]]])
  np.testing.assert_array_equal(drawn(mask, draw, 2), [[[0, 1, 0, 1], [0, 0, 0, 1]]])
  np.testing.assert_array_equal(drawn(mask, draw, 9), mask)


def test_sampled_negatives_differ_from_step_to_step():
  example_batch, net = batch(), model()
  values = params(net)
  chosen = []
  for key in range(2):
    output = run(net, values, example_batch, train=True, key=key)
    term = loss(negatives="sampled:2")(output, example_batch, jnp.float32(1))["matching_negative"]
    chosen.append(np.asarray(term.weights))
    np.testing.assert_array_equal(chosen[-1].sum(-1), 2)
  assert np.any(chosen[0] != chosen[1])


def test_the_softmax_over_a_batch_in_numpy():
  example_batch, net = batch(negatives=1, examples=16), model(match_on="mean")
  output = run(net, params(net), example_batch, train=True)
  terms = loss(matching="softmax", gamma=3.0)(output, example_batch, jnp.float32(1))
  assert "matching_positive" not in terms and terms["matching_softmax"].scale == 3.0
  right = jnp.asarray(
    (example_batch.examples.labels[..., 0] == 1) & (example_batch.examples.mask > 0), jnp.float32
  )
  positive, negative = (np.asarray(x[0]) for x in pairs_of(example_batch, right))
  q, a = (np.asarray(x.mean[0], np.float64) for x in (output.question, output.answer))
  unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
  weight = np.exp(float(output.scale) * unit(q) @ unit(a).T)
  values = [
    -np.log(weight[i, j] / (weight[i, j] + weight[i][negative[i] > 0].sum()))
    for i, j in zip(*np.nonzero(positive))
  ]
  assert len(values) == 8
  assert mean(terms["matching_softmax"]) == pytest.approx(np.mean(values), rel=1e-5)


def test_the_mean_over_words_and_what_is_logged_of_latents():
  example_batch, net = batch(), model()
  output = run(net, params(net), example_batch, train=True)
  side = output.question
  each = np.asarray(kl_of_dimensions(side.mean, side.log_variance))[0].mean(0)
  terms = loss(reconstruction="mean")(output, example_batch, jnp.float32(50))
  per_word = np.asarray(-side.log_likelihood / side.words)[0].mean()
  assert mean(terms["reconstruction_question"]) == pytest.approx(per_word, rel=1e-5)
  assert mean(terms["kl_question"]) == pytest.approx(each.sum(), rel=1e-5)
  signal = np.asarray(side.mean)[0].var(0).sum()
  noise = np.exp(np.asarray(side.log_variance))[0].mean(0).sum()
  assert mean(terms["signal_question"]) == pytest.approx(signal / (signal + noise), rel=1e-5)
