"""ModernBERT: packed and alone, its window and config; parity is in parity_test."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import lay, vectors
from tiny_bert import apply, initialised
from tiny_modernbert import ALONE, PACKED, SEQUENCES, config, tiny

from as2jax.encoders.modernbert import MODERNBERT, ModernBertEncoder
from as2jax.runtime.errors import InputError


@pytest.mark.parametrize("fields", [{}, {"unroll": 1}, {"remat": True}, {"num_layers": 1}])
def test_packing_padding_and_shards_change_no_vector(fields):
  encoder = tiny(**fields)
  tokens, units = lay(SEQUENCES, ALONE, 11)
  params = initialised(encoder, tokens)
  expected = vectors(apply(encoder, params, tokens), units)
  assert np.std(np.concatenate(list(expected.values())), axis=0).min() > 0.05
  for rows, length, shards in ((PACKED, 18, 1), ([(4, 3, 2), (0, 1)], 17, 2)):
    tokens, units = lay(SEQUENCES, rows, length, shards=shards)
    actual = vectors(apply(encoder, params, tokens), units)
    for n in expected:
      np.testing.assert_allclose(actual[n], expected[n], atol=5e-6)


def test_local_layers_see_the_window_alone():
  """With one global layer (the first), a token's change reaches half a window a local layer."""
  encoder = tiny(num_layers=2, window=4, global_every=5)
  ids = np.arange(1, 21, dtype=np.int32)
  tokens, units = lay([ids], [(0,)], 20)
  params = initialised(encoder, tokens)
  cut = jax.tree.map(lambda x: x, params)
  cut["first_layer"]["attention"]["output"]["kernel"] *= 0  # the global layer passes nothing on
  moved = tokens.replace(ids=tokens.ids.at[0, 0, 10].set(50))
  change = lambda p: np.abs(apply(encoder, p, tokens) - apply(encoder, p, moved))[0, 0].max(-1) > 0
  assert np.flatnonzero(change(cut)).tolist() == [8, 9, 10, 11, 12]
  assert change(params).all()


def test_dropout_acts_in_training_alone():
  encoder = tiny(embedding_dropout=0.3, hidden_dropout=0.3, attention_dropout=0.3)
  tokens, _ = lay(SEQUENCES, PACKED, 18)
  params = initialised(encoder, tokens)
  run = lambda key, train: np.asarray(
    apply(encoder, params, tokens, jax.random.key(key), train=train)
  )
  assert np.any(run(0, True) != run(1, True)) and np.array_equal(run(0, False), run(1, False))


def test_input_offset_is_added_before_the_norm():
  encoder = tiny()
  tokens, _ = lay(SEQUENCES, PACKED, 18)
  params = initialised(encoder, tokens)
  role = np.random.default_rng(0).normal(size=16).astype(np.float32)
  actual = apply(encoder, params, tokens, input_offset=jnp.broadcast_to(role, (1, 2, 18, 16)))
  table = params["embeddings"]["word"] + role[None]
  moved = {**params, "embeddings": {**params["embeddings"], "word": table}}
  np.testing.assert_allclose(actual, apply(encoder, moved, tokens), atol=1e-5)


def test_both_forms_of_the_config_are_read():
  kinds = ["full_attention" if n % 3 == 0 else "sliding_attention" for n in range(5)]
  theta = lambda value: {"rope_type": "default", "rope_theta": value}
  today = config(
    layer_types=kinds,
    rope_parameters={"full_attention": theta(160000.0), "sliding_attention": theta(10000.0)},
  )
  for key in ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"):
    del today[key]
  assert MODERNBERT.fields(today) == MODERNBERT.fields(config())
  assert ModernBertEncoder(**MODERNBERT.fields(today)) == tiny()


def test_local_attention_without_a_base_of_its_own_has_the_global_one():
  fields = MODERNBERT.fields(config(global_rope_theta=7e4, local_rope_theta=None))
  assert (fields["global_theta"], fields["local_theta"]) == (7e4, 7e4)


@pytest.mark.parametrize(
  "fields, message",
  [
    ({"num_heads": 3}, "num_heads: 3 heads do not divide"),
    ({"num_heads": 16}, "num_heads: 16 heads of hidden_size 16 have an odd width"),
    ({"window": 0}, "encoder.window = 0"),
    ({"global_every": 0}, "encoder.global_every = 0"),
    ({"activation": "swish"}, "encoder.activation = 'swish'"),
    ({"dtype": "float16"}, "encoder.dtype = 'float16'"),
    ({"attention": "flash"}, "encoder.attention = 'flash'"),
    ({"unroll": -1}, "encoder.unroll = -1"),
  ],
)
def test_impossible_fields_are_named(fields, message):
  tokens, _ = lay(SEQUENCES, ALONE, 11)
  with pytest.raises(InputError, match=message):
    tiny(**fields).init(jax.random.key(0), tokens, train=False)
