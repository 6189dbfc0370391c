"""Transformers over packed rows: packing, execution choices, dropout, gradients; parity is in parity_test."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_transformers import (
  ALONE,
  ENCODERS,
  PACKED,
  SEQUENCES,
  TYPES,
  apply,
  initialised,
  lay,
  loss_and_gradient,
  vectors,
)

from as2jax.encoders import deberta, mpnet
from as2jax.encoders.modernbert import MODERNBERT
from as2jax.layers import transformer
from as2jax.runtime.errors import InputError

BERT = ENCODERS["bert"]


def packed(length=16):
  return lay(SEQUENCES, PACKED, length, types=TYPES)[0]


@pytest.mark.parametrize("kind", ENCODERS)
def test_packing_padding_and_shards_change_no_vector(kind):
  encoder = ENCODERS[kind]
  tokens, units = lay(SEQUENCES, ALONE, 9, types=TYPES)
  params = initialised(encoder, tokens)
  last = apply(encoder, params, tokens)
  np.testing.assert_array_equal(last, apply(encoder, params, tokens, all_layers=True)[-1])
  expected = vectors(last, units)
  spread = np.std(np.concatenate(list(expected.values())), axis=0)
  assert spread.min() > 0.05  # the comparison below is not one of constants
  for rows, length, shards in ((PACKED, 19, 2), ([(4, 3, 2), (0, 1)], 16, 1)):
    tokens, units = lay(SEQUENCES, rows, length, shards=shards, types=TYPES)
    actual = vectors(apply(encoder, params, tokens), units)
    for n in expected:
      np.testing.assert_allclose(actual[n], expected[n], atol=5e-6)


@pytest.mark.parametrize(
  "kind, fields",
  [
    ("bert", {"unroll": 1}),
    ("bert", {"remat": True}),
    ("bert", {"attention": "plain"}),
    ("xlnet", {"remat": True, "unroll": 2}),
    ("modernbert", {"unroll": 1}),
    ("deberta-v2", {"remat": True, "unroll": 2}),
  ],
)
def test_execution_choices_change_no_parameter_output_or_gradient(kind, fields):
  tokens = packed()
  weights = jnp.asarray(np.random.default_rng(0).normal(size=(1, 2, 16, 16)), jnp.float32)
  plain, chosen = ENCODERS[kind], ENCODERS[kind].clone(**fields)
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


# Embeddings; softmax and two residuals of a layer. XLNet: sinusoids, output and inner layers, too.
# DeBERTa: each layer's vectors of positions, too.
@pytest.mark.parametrize(
  "kind, sites", [("bert", 7), ("xlnet", 11), ("modernbert", 10), ("deberta-v2", 9)]
)
def test_each_site_of_each_layer_has_its_own_key(kind, sites, monkeypatch):
  seen = []

  def recorded(key, x, rate):
    jax.debug.callback(lambda data: seen.append(tuple(data.tolist())), jax.random.key_data(key))
    return x

  monkeypatch.setattr(transformer, "dropout", recorded)
  tokens, _ = lay(SEQUENCES, ALONE, 9)
  encoder = ENCODERS[kind]
  params = initialised(encoder, tokens)
  # A step of its own, so that no compiled program of another test is found in its place.
  run = jax.jit(
    lambda key: encoder.apply({"params": params}, tokens, train=True, rngs={"dropout": key})
  )
  run(jax.random.key(0)), run(jax.random.key(1)), jax.effects_barrier()
  assert len(seen) == len(set(seen)) == 2 * sites
  run(jax.random.key(0)), jax.effects_barrier()
  assert len(seen) == 3 * sites and len(set(seen)) == 2 * sites


@pytest.mark.parametrize("kind", ["bert", "xlnet", "modernbert", "deberta-v2"])
def test_input_offset_is_added_to_the_embeddings(kind):
  encoder, tokens = ENCODERS[kind], packed()
  params = initialised(encoder, tokens)
  role = np.random.default_rng(0).normal(size=16).astype(np.float32)
  actual = apply(encoder, params, tokens, input_offset=jnp.broadcast_to(role, (1, 2, 16, 16)))
  table = params["embeddings"]["word"] + role[None]
  moved = {**params, "embeddings": {**params["embeddings"], "word": table}}
  np.testing.assert_allclose(actual, apply(encoder, moved, tokens), atol=1e-5)
  assert np.abs(actual - apply(encoder, params, tokens)).max() > 0.1
  with pytest.raises(InputError, match="embeddings are 8 wide, its states 16"):
    apply(ENCODERS["electra"], params, tokens, input_offset=jnp.zeros((1, 2, 16, 16)))


@pytest.mark.parametrize("dtype, near", [("float32", 2e-6), ("bfloat16", 0.04)])
def test_the_fused_attention_is_the_plain_one_within_its_precision(dtype, near):
  tokens, _ = lay(SEQUENCES, PACKED, 16)
  real = np.asarray(tokens.segment > 0)[..., None]
  weights = jnp.asarray(np.random.default_rng(0).normal(size=(1, 2, 16, 16)) * real, jnp.float32)
  plain = BERT.clone(attention="plain", attention_dropout=0.0, hidden_dropout=0.0)
  fused = plain.clone(attention="xla", dtype=dtype)
  params = initialised(plain, tokens)
  hidden = apply(plain, params, tokens) * real
  ranking = fused.clone(attention_dropout=0.1)  # allowed where it is not used
  difference = np.abs(apply(ranking, params, tokens).astype(jnp.float32) * real - hidden).max()
  assert difference < near * np.abs(hidden).max()
  expected = loss_and_gradient(plain, params, tokens, weights)[1]
  actual = loss_and_gradient(fused, params, tokens, weights)[1]
  norm = lambda tree: np.sqrt(sum((np.asarray(x) ** 2).sum() for x in jax.tree.leaves(tree)))
  difference = jax.tree.map(lambda a, b: np.subtract(a, b, dtype=np.float32), expected, actual)
  assert norm(difference) < 3 * near * norm(expected)


def test_buckets_of_mpnet_by_hand():
  """Of 8: distances 0 and 1 have their own, then by the logarithm; keys behind the query from 4 on."""
  distance = np.asarray([0, -1, -2, -15, -16, -200, 1, 2, 15, 16, 200])
  assert mpnet.buckets(distance, 8).tolist() == [0, 1, 2, 2, 3, 3, 5, 6, 6, 7, 7]


@pytest.mark.parametrize("count, farthest", [(256, 512), (6, 9)])
def test_buckets_of_deberta_are_those_of_transformers(count, farthest):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

  distance = np.arange(-3000, 3000)
  expected = make_log_bucket_position(torch.tensor(distance), count, farthest).long()
  np.testing.assert_array_equal(deberta.buckets(distance, count, farthest), expected)


def test_both_forms_of_the_config_of_modernbert_are_read():
  sizes = dict(vocab_size=61, hidden_size=16, num_hidden_layers=5, num_attention_heads=4)
  sizes |= {"intermediate_size": 12, "local_attention": 4}
  published = {"global_attn_every_n_layers": 3, "global_rope_theta": 7e4, "local_rope_theta": 8e3}
  kinds = ["full_attention" if n % 3 == 0 else "sliding_attention" for n in range(5)]
  theta = lambda value: {"rope_type": "default", "rope_theta": value}
  ropes = {"full_attention": theta(7e4), "sliding_attention": theta(8e3)}
  fields = MODERNBERT.fields({**sizes, **published})
  assert fields == MODERNBERT.fields({**sizes, "layer_types": kinds, "rope_parameters": ropes})
  # Local attention without a base of its own has the global one.
  fields = MODERNBERT.fields({**sizes, **published, "local_rope_theta": None})
  assert (fields["global_theta"], fields["local_theta"]) == (7e4, 7e4)


@pytest.mark.parametrize(
  "kind, fields, message",
  [
    ("bert", {"num_heads": 3}, "num_heads.*3.*16"),
    ("bert", {"activation": "swish"}, "activation.*swish.*gelu"),
    ("bert", {"dtype": "float16"}, "dtype.*float16.*bfloat16"),
    ("bert", {"unroll": -1}, "unroll.*-1"),
    ("xlnet", {"attention_type": "both"}, "attention_type.*both.*bi, uni"),
    ("deberta-v2", {"buckets": 2}, "encoder.buckets = 2: give 4 or more"),
    ("modernbert", {"window": 0}, "encoder.window = 0"),
    ("bert", {"attention": "xla"}, "'xla' has no dropout.*attention_dropout to 0"),
    ("bert", {"attention": "cudnn", "attention_dropout": 0.0}, "'cudnn' needs a GPU"),
    ("bert", {"attention": "kernel"}, "'kernel' needs one GPU.*; and heads .* not 4: leave"),
    ("modernbert", {"attention": "kernel"}, "'kernel' needs .*BERT's attention"),
    ("mpnet", {"attention": "kernel"}, "'kernel' needs .*BERT's attention"),
    ("bert", {"attention": "flash"}, "encoder.attention = 'flash': use one of auto, plain"),
  ],
)
def test_impossible_fields_are_named(kind, fields, message):
  with pytest.raises(InputError, match=message):
    keys = dict.fromkeys(("params", "dropout"), jax.random.key(0))
    ENCODERS[kind].clone(**fields).init(keys, packed(), train=True)
