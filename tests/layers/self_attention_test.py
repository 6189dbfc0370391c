"""Structured self-attention: its equations in numpy, masks, the penalty by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from as2jax.layers.pooling import StructuredSelfAttention, redundancy

RNG = np.random.default_rng(0)
HIDDEN = RNG.normal(size=(3, 6, 4)).astype(np.float32)
LENGTH = np.asarray([6, 3, 0])
REAL = np.arange(6)[None] < LENGTH[:, None]


def apply(hidden):
  layer = StructuredSelfAttention(2, 5, "highest")
  params = layer.init(jax.random.key(0), jnp.asarray(hidden), jnp.asarray(REAL))["params"]
  params = jax.tree.map(lambda x: 3 * x, params)
  return params, layer.apply({"params": params}, jnp.asarray(hidden), jnp.asarray(REAL))


def test_the_equations():
  params, (pooled, weights) = apply(HIDDEN)
  for n in range(2):
    h = HIDDEN[n, : LENGTH[n]].astype(np.float64)
    scores = np.tanh(h @ params["hidden"]["kernel"]) @ params["hops"]["kernel"]
    a = (np.exp(scores) / np.exp(scores).sum(0)).T
    np.testing.assert_allclose(weights[n, :, : LENGTH[n]], a, atol=1e-6)
    np.testing.assert_allclose(pooled[n], (a @ h).ravel(), atol=1e-6)
    wanted = np.square(a @ a.T - np.eye(2)).sum()
    assert float(redundancy(weights)[n]) == pytest.approx(wanted, abs=1e-6)
  np.testing.assert_array_equal(weights[1, :, 3:], 0)


def test_padding_is_not_seen_and_no_text_gives_zero():
  noise = np.where(REAL[..., None], HIDDEN, 77).astype(np.float32)
  for one, two in zip(apply(HIDDEN)[1], apply(noise)[1]):
    np.testing.assert_array_equal(one, two)
  assert not np.any(apply(noise)[1][0][2])
