"""Sentence-BERT as a model; tests/encoders/sentence_folder_test.py has the library's vectors."""

import jax
import jax.numpy as jnp
import numpy as np
import step_batches
import tiny

from as2jax.models.biencoder import SentenceBert


def test_slots_without_a_text_have_no_vector_in_spite_of_biases():
  model = SentenceBert(
    encoder=tiny.encoder_module(),
    pooling=("mean", "cls"),
    score="cosine",
    dense=((7, "tanh", True), (6, "gelu", False), (4, "identity", True)),
    normalize=True,
  )
  example_batch = jax.tree.map(lambda x: jnp.asarray(x[0, 0]), step_batches.batch())
  shapes = jax.eval_shape(lambda b: model.init(jax.random.key(0), b, train=False), example_batch)
  rng = np.random.default_rng(0)
  draw = lambda x: jnp.asarray(rng.normal(0, 0.3, x.shape), jnp.float32)
  variables = jax.tree.map(draw, shapes)
  units = tiny.apply(model, variables, example_batch, method=SentenceBert.encode).units
  actual, used = np.asarray(units), np.asarray(example_batch.units.id) >= 0
  assert used.any() and not used.all() and not actual[~used].any()
  np.testing.assert_allclose(np.linalg.norm(actual[used], axis=-1), 1, rtol=1e-5)
