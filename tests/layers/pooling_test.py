"""Pooling over packed rows against a loop over units."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_transformers import lay, vectors

from as2jax.layers import pooling
from as2jax.layers.pooling import MODES, AttentionPooling

pool = functools.partial(jax.jit, static_argnums=3)(pooling.pool)
LENGTHS = (3, 1, 5, 2, 4, 7, 1)
PACKED = [(3, 0), (5,), (1, 2, 6), (4,)]


def batch(shards=2, width=8, unused=2):
  sequences = [np.ones(n, np.int32) for n in LENGTHS]
  tokens, units = lay(sequences, PACKED, 9, shards=shards, unused=unused)
  hidden = np.random.default_rng(0).normal(size=(*tokens.ids.shape, width))
  hidden[np.asarray(tokens.segment) == 0] = 1e6  # padding must not matter
  return jnp.asarray(hidden, jnp.float32), tokens, units


REFERENCE = {
  "mean": lambda x: x.mean(0),
  "max": lambda x: x.max(0),
  "cls": lambda x: x[0],
  "cls_last": lambda x: x[-1],
  "mean_sqrt_len": lambda x: x.sum(0) / len(x) ** 0.5,
  "weighted_mean": lambda x: sum((i + 1) * v for i, v in enumerate(x)) / sum(range(len(x) + 1)),
}


@pytest.mark.parametrize("mode", MODES)
def test_each_unit_is_pooled_alone(mode):
  hidden, tokens, units = batch()
  hidden = hidden.at[0, 0, 1, 3].set(jnp.nan)  # is its own unit's alone, and is not lost
  pooled = np.asarray(pool(hidden, tokens, units, mode))
  token_vectors = vectors(hidden, units)
  seen = 0
  for shard, slot in np.ndindex(*units.id.shape):
    member = int(units.id[shard, slot])
    if member >= 0:
      np.testing.assert_allclose(
        pooled[shard, slot], REFERENCE[mode](token_vectors[member]), atol=1e-6
      )
      seen += 1
    else:
      assert (pooled[shard, slot] == 0).all()
  assert seen == len(LENGTHS)


def test_the_tokens_of_a_role_are_pooled_alone():
  hidden, tokens, units = batch()
  tokens = tokens.replace(role=(tokens.position % 3 == 1).astype(jnp.int32))
  pooled = np.asarray(jax.jit(pooling.mean_of_role, static_argnums=3)(hidden, tokens, units, 1))
  for shard, slot in np.ndindex(*units.id.shape):
    chosen = np.zeros((1, 8))  # of an unused slot, and of a text of one token
    if int(units.length[shard, slot]) > 1:
      chosen = vectors(hidden, units)[int(units.id[shard, slot])][1::3]
    np.testing.assert_allclose(pooled[shard, slot], chosen.mean(0), atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_those_of_the_loop_and_zero_at_padding(mode):
  hidden, tokens, units = batch()
  weights = jnp.asarray(np.random.default_rng(1).normal(size=(*units.id.shape, 8)), jnp.float32)

  host = jax.tree.map(np.asarray, units)

  def loop(hidden):
    total = 0.0
    for shard, slot in np.ndindex(*host.id.shape):
      size = host.length[shard, slot]
      if size:
        row, start = host.row[shard, slot], host.start[shard, slot]
        span = hidden[shard, row, start : start + size]
        total += REFERENCE[mode](span) @ weights[shard, slot]
    return total

  gradient = lambda of: jax.jit(jax.grad(of))(hidden)
  actual = gradient(lambda h: (pool(h, tokens, units, mode) * weights).sum())
  np.testing.assert_allclose(actual, gradient(loop), atol=1e-6)
  assert (np.asarray(actual)[np.asarray(tokens.segment) == 0] == 0).all()


def test_max_of_ties_has_one_gradient():
  tokens, units = lay([np.ones(4, np.int32)], [(0,)], 6)
  gradient = jax.grad(lambda h: pool(h, tokens, units, "max").sum())(jnp.zeros((1, 1, 6, 3)))
  np.testing.assert_array_equal(gradient[0, 0, :, 0], [1, 0, 0, 0, 0, 0])


def test_bfloat16_is_summed_in_float32():
  tokens, units = lay([np.ones(300, np.int32)], [(0,)], 300)
  hidden = jnp.full((1, 1, 300, 2), 1.0, jnp.bfloat16)
  pooled = pool(hidden, tokens, units, "mean")
  assert pooled.dtype == jnp.float32
  np.testing.assert_allclose(pooled, 1.0, atol=1e-6)  # a bfloat16 sum stops at 256


def test_attention_pooling_is_a_softmax_over_the_unit():
  hidden, tokens, units = batch()
  query = jnp.asarray(np.random.default_rng(2).normal(size=8), jnp.float32)
  module = AttentionPooling()
  assert module.init(jax.random.key(0), hidden, tokens, units)["params"]["query"].shape == (8,)
  apply = jax.jit(lambda q, h: module.apply({"params": {"query": q}}, h, tokens, units))
  pooled, token_vectors = np.asarray(apply(query, hidden)), vectors(hidden, units)
  for shard, slot in np.ndindex(*units.id.shape):
    member = int(units.id[shard, slot])
    if member < 0:
      assert (pooled[shard, slot] == 0).all()
      continue
    x = token_vectors[member]
    weights = np.exp(x @ np.asarray(query) / np.sqrt(8))
    np.testing.assert_allclose(pooled[shard, slot], weights @ x / weights.sum(), atol=1e-5)
  gradients = jax.jit(jax.grad(lambda q, h: (apply(q, h) ** 2).sum(), argnums=(0, 1)))(
    query, hidden
  )
  assert all(np.isfinite(g).all() for g in gradients)
  assert (np.asarray(gradients[1])[np.asarray(tokens.segment) == 0] == 0).all()
  step = 1e-2 * jnp.eye(8)[3]
  numeric = (apply(query + step, hidden) ** 2).sum() - (apply(query - step, hidden) ** 2).sum()
  np.testing.assert_allclose(gradients[0][3], numeric / 2e-2, rtol=2e-2)
