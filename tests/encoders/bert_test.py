"""BERT: packing, its execution choices, gradients, published sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import lay, vectors
from tiny_bert import ALONE, PACKED, SEQUENCES, TINY, apply, initialised, loss_and_gradient, tiny

from as2jax.encoders.bert import BertEncoder
from as2jax.layers import transformer
from as2jax.runtime.errors import InputError


def test_packing_padding_and_shards_change_no_vector():
  encoder = tiny()
  tokens, units = lay(SEQUENCES, ALONE, 9)
  params = initialised(encoder, tokens)
  expected = vectors(apply(encoder, params, tokens), units)
  spread = np.std(np.concatenate(list(expected.values())), axis=0)
  assert spread.min() > 0.05  # the comparison below is not one of constants
  for rows, length, shards in ((PACKED, 16, 1), (PACKED, 19, 2), ([(4, 3, 2), (0, 1)], 16, 2)):
    tokens, units = lay(SEQUENCES, rows, length, shards=shards)
    actual = vectors(apply(encoder, params, tokens), units)
    for n in expected:
      np.testing.assert_allclose(actual[n], expected[n], atol=2e-6)


@pytest.mark.parametrize(
  "fields", [{"unroll": 1}, {"remat": True}, {"remat": True, "unroll": 2}, {"attention": "plain"}]
)
def test_execution_choices_change_no_parameter_output_or_gradient(fields):
  tokens, _ = lay(SEQUENCES, PACKED, 16)
  weights = jnp.asarray(np.random.default_rng(0).normal(size=(1, 2, 16, 16)), jnp.float32)
  plain, chosen = tiny(), tiny(**fields)
  assert plain.unroll == 0  # which is all layers here
  init = lambda module: jax.jit(lambda: module.init(jax.random.key(0), tokens, train=False))()
  for a, b in zip(jax.tree.leaves(init(plain)), jax.tree.leaves(init(chosen)), strict=True):
    np.testing.assert_array_equal(a, b)
  params = initialised(plain, tokens)
  expected = loss_and_gradient(plain, params, tokens, weights)
  actual = loss_and_gradient(chosen, params, tokens, weights)
  undropped = (apply(plain, params, tokens) * weights).sum()
  assert abs(expected[0] - undropped) > 0.1  # dropout is on, and the same in both
  for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * np.abs(a).max())


def test_each_site_of_each_layer_has_its_own_key(monkeypatch):
  seen = []

  def recorded(key, x, rate):
    jax.debug.callback(lambda data: seen.append(tuple(data.tolist())), jax.random.key_data(key))
    return x

  monkeypatch.setattr(transformer, "dropout", recorded)
  tokens, _ = lay(SEQUENCES, ALONE, 9)
  params = initialised(tiny(), tokens)
  # A step of its own, so that no compiled program of another test is found in its place.
  run = jax.jit(
    lambda key: tiny().apply({"params": params}, tokens, train=True, rngs={"dropout": key})
  )
  run(jax.random.key(0)), run(jax.random.key(1)), jax.effects_barrier()
  sites = 1 + 3 * TINY["num_layers"]  # embeddings; softmax and two residuals of a layer
  assert len(seen) == len(set(seen)) == 2 * sites
  run(jax.random.key(0)), jax.effects_barrier()
  assert len(seen) == 3 * sites and len(set(seen)) == 2 * sites


@pytest.mark.parametrize("dtype, near", [("float32", 2e-6), ("bfloat16", 0.04)])
def test_the_fused_attention_is_the_plain_one_within_its_precision(dtype, near):
  tokens, _ = lay(SEQUENCES, PACKED, 16)
  real = np.asarray(tokens.segment > 0)[..., None]
  weights = jnp.asarray(np.random.default_rng(0).normal(size=(1, 2, 16, 16)) * real, jnp.float32)
  plain = tiny(attention="plain", attention_dropout=0.0, hidden_dropout=0.0)
  fused = plain.clone(attention="xla", dtype=dtype)
  params = initialised(plain, tokens)
  hidden = apply(plain, params, tokens) * real
  difference = np.abs(apply(fused, params, tokens).astype(jnp.float32) * real - hidden).max()
  assert difference < near * np.abs(hidden).max()
  expected = loss_and_gradient(plain, params, tokens, weights)[1]
  actual = loss_and_gradient(fused, params, tokens, weights)[1]
  norm = lambda tree: np.sqrt(sum((np.asarray(x) ** 2).sum() for x in jax.tree.leaves(tree)))
  difference = jax.tree.map(lambda a, b: np.subtract(a, b, dtype=np.float32), expected, actual)
  assert norm(difference) < 3 * near * norm(expected)


def test_an_attention_that_cannot_be_is_named():
  tokens, _ = lay(SEQUENCES, PACKED, 16)
  params = initialised(tiny(), tokens)
  run = lambda encoder, train: encoder.apply(
    {"params": params}, tokens, train=train, rngs={"dropout": jax.random.key(0)}
  )
  jax.eval_shape(lambda: run(tiny(attention="xla"), False))  # without dropout it may be
  with pytest.raises(InputError, match="'xla' has no dropout.*attention_dropout to 0"):
    run(tiny(attention="xla"), True)
  with pytest.raises(InputError, match="'cudnn' wants a GPU.*cpu and float32"):
    run(tiny(attention="cudnn"), False)
  with pytest.raises(InputError, match="encoder.attention = 'flash': use one of auto, plain"):
    run(tiny(attention="flash"), False)


def test_padding_gives_finite_values_and_gradients():
  tokens, _ = lay(SEQUENCES[:2], [(0,), (1,), ()], 12)  # the last row is empty
  encoder = tiny()
  params = initialised(encoder, tokens)
  assert np.isfinite(apply(encoder, params, tokens)).all()
  for weights in (jnp.ones((1, 3, 12, 16)), (tokens.segment > 0)[..., None].astype(jnp.float32)):
    gradients = loss_and_gradient(encoder, params, tokens, weights)[1]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))


def test_input_offset_is_added_before_the_norm():
  encoder = tiny()
  tokens, _ = lay(SEQUENCES, PACKED, 16)
  params = initialised(encoder, tokens)
  role = np.random.default_rng(0).normal(size=16).astype(np.float32)
  offset = jnp.broadcast_to(role, (1, 2, 16, 16))
  actual = apply(encoder, params, tokens, input_offset=offset)
  # The same vector added to both token types is the same sum of embeddings.
  table = params["embeddings"]["type"] + jnp.broadcast_to(role, (2, 16))
  moved = {**params, "embeddings": {**params["embeddings"], "type": table}}
  np.testing.assert_allclose(actual, apply(encoder, moved, tokens), atol=1e-5)
  assert np.abs(actual[0, 0, 0] - apply(encoder, params, tokens)[0, 0, 0]).min() > 0


def test_every_parameter_and_no_other_unit_gets_gradient():
  encoder = tiny()
  tokens, units = lay(SEQUENCES, PACKED, 16)
  params = initialised(encoder, tokens)
  weights = np.zeros((1, 2, 16, 16), np.float32)
  start, size = int(units.start[0, 0]), int(units.length[0, 0])
  weights[0, 0, start : start + size] = np.random.default_rng(0).normal(size=(size, 16))
  gradients = loss_and_gradient(encoder, params, tokens, jnp.asarray(weights))[1]
  rows = np.flatnonzero(np.abs(BertEncoder.embedding_table(gradients)).sum(-1))
  assert set(rows) == set(SEQUENCES[1])  # the first unit's ids alone
  for path, leaf in jax.tree_util.tree_leaves_with_path(gradients["layers"]):
    moved = np.abs(leaf).reshape(2, -1).sum(-1)
    if "key" in str(path) and "bias" in str(path):
      continue  # softmax does not see a key bias
    assert (moved > 0).all(), path


@pytest.mark.parametrize(
  "fields, message",
  [
    ({"num_heads": 3}, "num_heads.*3.*16"),
    ({"activation": "swish"}, "activation.*swish.*gelu"),
    ({"dtype": "float16"}, "dtype.*float16.*bfloat16"),
    ({"dtype": "wide"}, "dtype.*wide"),
    ({"unroll": -1}, "unroll.*-1"),
  ],
)
def test_impossible_fields_are_named(fields, message):
  tokens, _ = lay(SEQUENCES, ALONE, 9)
  with pytest.raises(InputError, match=message):
    tiny(**fields).init(jax.random.key(0), tokens, train=False)
