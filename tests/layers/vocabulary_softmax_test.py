"""The softmax in chunks: the plain numbers and gradients, in far less memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from as2jax.layers.vocabulary_softmax import log_likelihood

RNG = np.random.default_rng(0)
S, N, D, V = 2, 21, 5, 13
HIDDEN = RNG.normal(size=(S, N, D)).astype(np.float32)
TARGET = RNG.integers(0, V, (S, N)).astype(np.int32)
REAL = RNG.random((S, N)) < [[0.6], [0.2]]
KERNEL = RNG.normal(size=(V, D)).astype(np.float32)
BIAS = RNG.normal(size=V).astype(np.float32)
WEIGHT = RNG.normal(size=(S, N)).astype(np.float32)


@functools.partial(jax.jit, static_argnums=0)
def value_and_gradient(chunk, hidden, kernel, bias):
  def total(hidden, kernel, bias):
    actual = log_likelihood(
      hidden, jnp.asarray(TARGET), jnp.asarray(REAL), kernel, bias, chunk=chunk, precision="highest"
    )
    return jnp.sum(WEIGHT * actual), actual

  return jax.value_and_grad(total, (0, 1, 2), has_aux=True)(hidden, kernel, bias)


@pytest.mark.parametrize("chunk", [0, 1, 4, 7, 21, 50])
def test_any_chunk_gives_the_plain_softmax(chunk):
  logits = HIDDEN.astype(np.float64) @ KERNEL.T.astype(np.float64) + BIAS
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  wanted = np.where(REAL, np.take_along_axis(log_p, TARGET[..., None], -1)[..., 0], 0)
  (_, actual), gradient = value_and_gradient(chunk, HIDDEN, KERNEL, BIAS)
  np.testing.assert_allclose(actual, wanted, atol=2e-6)
  onehot = np.eye(V)[TARGET] - np.exp(log_p)
  slope = (WEIGHT * REAL)[..., None] * onehot
  for got, want in zip(
    gradient, (slope @ KERNEL, np.einsum("snv,snd->vd", slope, HIDDEN), slope.sum((0, 1)))
  ):
    np.testing.assert_allclose(got, want, atol=5e-6)


def test_padding_may_hold_anything_finite():
  noise = np.where(REAL[..., None], HIDDEN, 1e20).astype(np.float32)
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
