"""Sentence-BERT as a model: poolings, dense layers and normalisation by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import tiny
from scipy.special import erf

from as2jax.data.batches import examples as layouts
from as2jax.data.batches.batcher import fit_batcher
from as2jax.data.record import Candidate, Question
from as2jax.data.text.tokenise import build_units
from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.layers.pooling import pool
from as2jax.models.biencoder import SentenceBert
from as2jax.runtime import registry

FIELDS = {
  "pooling": ("mean", "cls"),
  "normalize": True,
  "dense": ((7, "tanh", True), (6, "gelu", False), (5, "relu", True), (4, "identity", True)),
}
QUESTION = Question(
  "Q",
  "what did the cat eat",
  tuple(Candidate(f"D{i}", "the cat ate fish " * (i + 1), int(i == 1)) for i in range(4)),
)


def make(score="cosine", **changes):
  section = {"name": "sentence_bert", "score": score}
  return registry.build(
    registry.MODELS, section, "model", encoder=tiny.encoder_module(), **{**FIELDS, **changes}
  )


def batch():
  """The sentences of QUESTION, packed, with unused slots."""
  units, table = layouts.sentences((QUESTION,))
  built = build_units(
    units, load_tokenizer(tiny.encoder_folder()), max_length=64, template="single"
  )
  b = fit_batcher(
    built,
    table,
    sampler="ordered",
    examples_per_batch=len(table) + 3,
    rows=8,
    row_lengths=(64,),
    packed=True,
    shards=1,
    accumulate=1,
    buckets=1,
  )
  return jax.tree.map(lambda x: jnp.asarray(x[0]), b.batch(b.plan(b.sampler.blocks(), 0, 0), 0))


def random_variables(model, example_batch):
  shapes = jax.eval_shape(lambda b: model.init(jax.random.key(0), b, train=False), example_batch)
  rng = np.random.default_rng(0)
  return jax.tree.map(lambda x: jnp.asarray(rng.normal(0, 0.3, x.shape), jnp.float32), shapes)


def test_vectors_by_hand():
  model, example_batch = make(), batch()
  variables = random_variables(model, example_batch)
  params = jax.tree.map(np.asarray, variables["params"])
  hidden = tiny.apply(tiny.encoder_module(), {"params": params["encoder"]}, example_batch.tokens)
  x = np.concatenate(
    [pool(hidden, example_batch.tokens, example_batch.units, mode) for mode in ("mean", "cls")], -1
  )
  x = np.tanh(x @ params["dense_0"]["kernel"] + params["dense_0"]["bias"])
  x = x @ params["dense_1"]["kernel"]
  x = x * (1 + erf(x / 2**0.5)) / 2
  x = np.maximum(x @ params["dense_2"]["kernel"] + params["dense_2"]["bias"], 0)
  x = x @ params["dense_3"]["kernel"] + params["dense_3"]["bias"]
  x = x / np.linalg.norm(x, axis=-1, keepdims=True)
  units = tiny.apply(model, variables, example_batch, method=SentenceBert.encode).units
  actual, used = np.asarray(units), np.asarray(example_batch.units.id) >= 0
  assert used.sum() == 5 and (~used).sum() >= 1
  np.testing.assert_allclose(actual[used], x[used], atol=1e-5)
  assert (actual[~used] == 0).all()  # in spite of the biases
