"""Shared layers: dropout's statistics and placement, norm, activation, attention."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from as2jax.layers import transformer
from as2jax.layers.relative_attention import RelativeAttention, sinusoids


def bits(seed, count=1 << 18):
  return np.asarray(transformer.hash_bits(jax.random.key(seed), (count,)))


def test_each_byte_of_the_hash_is_uniform():
  for seed in range(4):
    words = bits(seed)
    for shift in (0, 8, 16, 24):
      counts = np.bincount((words >> shift) & 255, minlength=256)
      expected = len(words) / 256
      chi_square = ((counts - expected) ** 2 / expected).sum()
      assert 160 < chi_square < 370  # 255 degrees of freedom: s.d. 22.6, so five of them


def test_masks_of_neighbours_heads_rows_and_keys_are_independent():
  def kept(words):
    return (words < round(0.9 * 2**32)) - 0.9

  first = kept(bits(0))
  scale = 0.09 * math.sqrt(len(first))
  for lag in (1, 2, 3, 8, 32, 128, 384, 128 * 128, 12 * 128 * 128):
    assert abs((first[:-lag] * first[lag:]).sum()) / scale < 5
  for seed in range(1, 20):  # neighbouring keys
    assert abs((first * kept(bits(seed))).sum()) / scale < 5
  keys = jax.random.split(jax.random.key(0), 20)
  masks = [kept(np.asarray(transformer.hash_bits(key, first.shape))) for key in keys]
  for a, b in zip(masks, masks[1:], strict=False):
    assert abs((a * b).sum()) / scale < 5


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_dropout_keeps_the_mean_and_drops_at_its_rate(rate):
  dropped = np.asarray(transformer.dropout(jax.random.key(3), jnp.ones((512, 512)), rate))
  assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / (1 - rate))}
  deviation = math.sqrt(rate * (1 - rate) / dropped.size)
  assert abs((dropped == 0).mean() - rate) < 5 * deviation


def test_dropout_depends_on_its_key_alone():
  x = jnp.ones((64, 64))
  once, again, other = (transformer.dropout(jax.random.key(k), x, 0.5) for k in (0, 0, 1))
  assert (once == again).all() and (once != other).any()
  assert (transformer.dropout(jax.random.key(0), x, 0.0) == x).all()
  bfloat = transformer.dropout(jax.random.key(0), x.astype(jnp.bfloat16), 0.5)
  assert bfloat.dtype == jnp.bfloat16
  assert (bfloat.astype(jnp.float32) == once).all()
  with pytest.raises(ValueError, match="1.5"):
    transformer.dropout(jax.random.key(0), x, 1.5)


def test_dropout_is_the_same_on_several_devices_without_communication():
  x = jnp.arange(16 * 3 * 8 * 8, dtype=jnp.float32).reshape(16, 3, 8, 8) + 1
  f = jax.jit(lambda key, x: transformer.dropout(key, x, 0.3))
  alone = f(jax.random.key(5), x)
  mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
  split = jax.device_put(x, NamedSharding(mesh, PartitionSpec("data")))
  program = f.lower(jax.random.key(5), split).compile()
  spread = program(jax.random.key(5), split)
  assert len(spread.sharding.device_set) == 2
  np.testing.assert_array_equal(alone, spread)
  assert 0.25 < float((alone == 0).mean()) < 0.35
  assert not re.search("all-(gather|reduce|to-all)|collective-permute", program.as_text())


def test_layer_norm_has_float32_statistics_in_bfloat16():
  x = 100 + np.random.default_rng(0).normal(size=(4, 64))
  norm = transformer.LayerNorm(1e-12, jnp.bfloat16)
  x16 = jnp.asarray(x, jnp.bfloat16)
  variables = norm.init(jax.random.key(0), x16)
  exact = np.asarray(x16, np.float64)
  exact = (exact - exact.mean(-1, keepdims=True)) / exact.std(-1, keepdims=True)
  actual = norm.apply(variables, x16)
  assert actual.dtype == jnp.bfloat16
  assert variables["params"]["scale"].dtype == jnp.float32
  np.testing.assert_allclose(np.asarray(actual, np.float64), exact, rtol=2**-8, atol=1e-3)


def test_attention_scores_are_float32_in_bfloat16():
  shapes = jax.ShapeDtypeStruct((2, 8, 2, 4), jnp.bfloat16)
  mask = jax.ShapeDtypeStruct((2, 1, 8, 8), bool)
  program = str(jax.make_jaxpr(transformer.attend)(shapes, shapes, shapes, mask))
  exponentials = [line for line in program.splitlines() if "= exp" in line]
  assert exponentials and all("f32[2,2,8,8]" in line for line in exponentials)


def test_attention_is_dropped_after_its_softmax():
  """The kept weights of a row do not sum to one, and are what the equation says times the mask."""
  rng = np.random.default_rng(1)
  query, key, value = jnp.asarray(3 * rng.normal(size=(3, 2, 7, 3, 4)), jnp.float32)
  mask = transformer.segment_mask(jnp.asarray([[1, 1, 1, 2, 2, 2, 0], [1, 2, 2, 2, 2, 3, 3]]))
  kept = jnp.asarray(rng.integers(0, 2, (2, 3, 7, 7)) / 0.5, jnp.float32)

  def plain(query, key, value):
    scores = jnp.einsum("bqhk,bthk->bhqt", query, key) / 2  # √k = 2
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)) * kept
    return jnp.einsum("bhqt,bthk->bqhk", weights, value)

  ours = lambda *qkv: transformer.attend(*qkv, mask, drop=lambda weights: weights * kept)
  outputs = [jax.vjp(f, query, key, value) for f in (ours, plain)]
  np.testing.assert_allclose(outputs[0][0], outputs[1][0], atol=2e-6)
  direction = jnp.asarray(rng.normal(size=value.shape), jnp.float32)
  for a, b in zip(outputs[0][1](direction), outputs[1][1](direction)):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5)


def test_memory_holds_no_vector_for_each_pair():
  attention = RelativeAttention(2, 0.0, jnp.float32, None)
  x, mask = jnp.zeros((1, 64, 256)), jnp.ones((1, 1, 64, 64), bool)
  call = functools.partial(attention.apply, train=False)
  arguments = (x, mask, mask, sinusoids(64, 256, -1))
  params = jax.eval_shape(lambda: attention.init(jax.random.key(0), *arguments, train=False))
  used = jax.jit(call).lower(params, *arguments).compile().memory_analysis().temp_size_in_bytes
  assert used < 4 * 64 * 64 * 256  # float32 [64, 64, 2, 128]
