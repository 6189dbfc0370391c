"""What is watched of a Cross-VAE: KL, active units and perplexity by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from as2jax.models import cross_vae_watch
from as2jax.models.cross_vae_loss import kl_of_dimensions
from tiny_cross_vae import batch, model, params, run


def side(mean, log_variance=None, **others):
  found = {"mean": np.asarray(mean, np.float64), **{k: np.asarray(v) for k, v in others.items()}}
  return found if log_variance is None else {**found, "log_variance": np.asarray(log_variance)}


def test_numbers_by_hand():
  """Two texts, three dimensions: one that tells them apart, one only off the prior, one collapsed.
  """
  mean, log_variance = [[1, 2, 0.0], [-1, 2, 0.0]], np.zeros((2, 3))
  measured = {
      "question": side(mean, log_variance, words=[3, 1], all_words=[4, 4],
                       log_likelihood=[-6.0, -2.0]),
      "answer": side(np.zeros((2, 3)), log_variance, words=[2, 2], all_words=[2, 2],
                     log_likelihood=[0.0, 0.0])}
  assert cross_vae_watch.summary(measured) == pytest.approx({
      "active_units_question": 1, "kl_question": 0.5 + 2, "kl_active_dimensions_question": 2,
      "perplexity_question": np.exp(8 / 4), "words_not_generated_question": 0.5,
      "active_units_answer": 0, "kl_answer": 0, "kl_active_dimensions_answer": 0,
      "perplexity_answer": 1, "words_not_generated_answer": 0})
  head, *rows = [line.split("\t") for line in cross_vae_watch.table(measured).splitlines()]
  assert head == ["dimension", "kl_question", "variance_of_mean_question", "kl_answer",
                  "variance_of_mean_answer"]
  assert [[float(x) for x in row] for row in rows] == [
      [0, 0.5, 1, 0, 0], [1, 2, 0, 0, 0], [2, 0, 0, 0, 0]]


def test_dual_grus_have_a_variance_alone():
  measured = {name: side([[0.0, 1], [1, 1]], all_words=[1, 1], words=[1, 1])
              for name in ("question", "answer")}
  assert cross_vae_watch.summary(measured) == {"active_units_question": 1, "active_units_answer": 1}
  assert cross_vae_watch.table(measured).startswith(
      "dimension\tvariance_of_mean_question\tvariance_of_mean_answer\n")


def test_words_that_are_not_generated_are_read_but_do_not_count():
  whole, made = model(), batch()
  few = model(output_size=20)
  ids = np.asarray(made.tokens.ids)
  assert (ids >= 20).any() and (ids < 20).any()
  values = params(few, made)
  output = run(few, values, made)
  assert 0 < float(output.answer.words.sum()) < float(run(
      whole, params(whole, made), made).answer.words.sum())
  # Another such word in its place: what it would cost is not counted, what follows it is.
  other = made.replace(tokens=made.tokens.replace(ids=jnp.where(ids >= 20, 49 - ids, ids)))
  again = run(few, values, other)
  np.testing.assert_array_equal(again.answer.words, output.answer.words)
  assert np.abs(again.answer.log_likelihood - output.answer.log_likelihood).max() > 1e-3
  # Nor does the likelihood depend on its row: of the decoder's scores it has none.
  assert values["answer_decoder"]["words"]["bias"].shape == (20,)


def test_reconstruct_gives_what_the_forward_pass_has():
  net, made = model(), batch()
  values = params(net, made)
  output = run(net, values, made)
  found = net.apply({"params": values}, made, train=False, method="reconstruct")
  for name in ("question", "answer"):
    for key in ("mean", "log_variance", "log_likelihood", "words"):
      np.testing.assert_allclose(found[name][key], getattr(getattr(output, name), key), rtol=1e-5,
                                 atol=1e-5)
    np.testing.assert_array_equal(found[name]["all_words"], found[name]["words"])
  kl = kl_of_dimensions(found["question"]["mean"], found["question"]["log_variance"])
  assert kl.shape == output.question.mean.shape
