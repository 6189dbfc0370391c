"""Decoders: an output of their own, the bag's softmax; the softmax over the vocabulary in chunks.

The step of Cross-VAEs is PyTorch's.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from as2jax.layers.decoder import BagDecoder, GRUDecoder, log_likelihood

RNG = np.random.default_rng(0)
S, E, L, Z, D, H, V = 2, 3, 5, 4, 6, 7, 11
LATENT = RNG.normal(size=(S, E, Z)).astype(np.float32)
READ = RNG.integers(1, V, (S, E, L)).astype(np.int32)
TARGET = RNG.integers(3, V, (S, E, L)).astype(np.int32)
LENGTH = RNG.integers(1, L + 1, (S, E))
REAL = np.arange(L) < LENGTH[..., None]
TABLE = RNG.normal(size=(V, D)).astype(np.float32)
ARGUMENTS = tuple(map(jnp.asarray, (LATENT, TABLE[READ], TARGET, REAL, TABLE)))


def decoder(kind="gru", tied=True, chunk=0):
  if kind == "mlp":
    return BagDecoder(H, tied, "highest")
  return GRUDecoder(H, tied, chunk, 1, "highest")


def params(module):
  shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), *ARGUMENTS))["params"]
  return tiny.drawn(shapes, 0.5)


def on_device(values):
  return jax.tree.map(jnp.asarray, values)


def test_an_output_of_its_own_in_chunks_has_the_numbers_of_the_tied_one():
  values = params(decoder())
  width, bias = values["words"]["width"], values["words"]["bias"]
  own = {"words": TABLE @ width["kernel"].T, "bias": bias + TABLE @ width["bias"]}
  expected = decoder().apply({"params": on_device(values)}, *ARGUMENTS)
  untied = {"params": on_device({**values, "words": own})}
  actual = decoder(tied=False, chunk=4).apply(untied, *ARGUMENTS)
  np.testing.assert_allclose(actual, expected, atol=1e-5)
  assert np.asarray(expected)[REAL].all() and not np.asarray(expected)[~REAL].any()


@pytest.mark.parametrize("tied", [True, False])
def test_the_bag_is_one_softmax_a_text(tied):
  module = decoder("mlp", tied)
  values = params(module)
  actual = module.apply({"params": on_device(values)}, *ARGUMENTS)
  hidden = np.maximum(LATENT @ values["hidden"]["kernel"] + values["hidden"]["bias"], 0)
  words = values["words"]
  if tied:
    hidden = hidden @ words["width"]["kernel"] + words["width"]["bias"]
  logits = hidden @ (TABLE if tied else words["words"]).T + words["bias"]
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  wanted = np.where(REAL, np.take_along_axis(log_p, TARGET, -1), 0)
  np.testing.assert_allclose(actual, wanted, atol=1e-5)


WORDS = 13
HIDDEN = RNG.normal(size=(2, 21, 5)).astype(np.float32)
WORD = RNG.integers(0, WORDS, (2, 21)).astype(np.int32)
COUNTS = RNG.random((2, 21)) < [[0.6], [0.2]]
KERNEL = RNG.normal(size=(WORDS, 5)).astype(np.float32)
BIAS = RNG.normal(size=WORDS).astype(np.float32)
WEIGHT = RNG.normal(size=(2, 21)).astype(np.float32)


@functools.partial(jax.jit, static_argnums=0)
def value_and_gradient(chunk, hidden, kernel, bias):
  def total(hidden, kernel, bias):
    actual = log_likelihood(
      hidden, jnp.asarray(WORD), jnp.asarray(COUNTS), kernel, bias, chunk=chunk, precision="highest"
    )
    return jnp.sum(WEIGHT * actual), actual

  return jax.value_and_grad(total, (0, 1, 2), has_aux=True)(hidden, kernel, bias)


@pytest.mark.parametrize("chunk", [0, 1, 4, 7, 21, 50])
def test_any_chunk_gives_the_plain_softmax(chunk):
  logits = HIDDEN.astype(np.float64) @ KERNEL.T.astype(np.float64) + BIAS
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  wanted = np.where(COUNTS, np.take_along_axis(log_p, WORD[..., None], -1)[..., 0], 0)
  (_, actual), gradient = value_and_gradient(chunk, HIDDEN, KERNEL, BIAS)
  np.testing.assert_allclose(actual, wanted, atol=2e-6)
  onehot = np.eye(WORDS)[WORD] - np.exp(log_p)
  slope = (WEIGHT * COUNTS)[..., None] * onehot
  for got, want in zip(
    gradient, (slope @ KERNEL, np.einsum("snv,snd->vd", slope, HIDDEN), slope.sum((0, 1)))
  ):
    np.testing.assert_allclose(got, want, atol=5e-6)


def test_padding_may_hold_anything_finite():
  noise = np.where(COUNTS[..., None], HIDDEN, 1e20).astype(np.float32)
  one, two = (value_and_gradient(4, x, KERNEL, BIAS) for x in (HIDDEN, noise))
  np.testing.assert_array_equal(one[0][1], two[0][1])
  for a, b in zip(one[1][1:], two[1][1:]):
    np.testing.assert_array_equal(a, b)


def memory(chunk, words, tokens, width):
  """Bytes that a compiled step of the softmax and its gradient needs beside its arguments."""
  shape = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)

  def step(hidden, kernel, bias, target, real):
    total = lambda *x: log_likelihood(
      x[0], target, real, x[1], x[2], chunk=chunk, precision="highest"
    ).sum()
    return jax.grad(total, (0, 1, 2))(hidden, kernel, bias)

  lowered = jax.jit(step).lower(
    shape(1, tokens, width),
    shape(words, width),
    shape(words),
    jax.ShapeDtypeStruct((1, tokens), jnp.int32),
    jax.ShapeDtypeStruct((1, tokens), jnp.bool_),
  )
  return lowered.compile().memory_analysis().temp_size_in_bytes


def test_memory_is_that_of_a_chunk():
  """A tenth of the paper's words and width: logits of all words are 102 MB, of a chunk 5 MB."""
  plain, chunked = (memory(chunk, 5000, 5120, 76) for chunk in (0, 256))
  assert plain > 4 * 5000 * 5120
  assert chunked < plain / 8
