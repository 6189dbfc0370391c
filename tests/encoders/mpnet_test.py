"""MPNet: packed and alone, its buckets, its config and weights; parity is in parity_test."""

import json

import numpy as np
import pytest
from rows import lay, vectors
from tiny_bert import ALONE, PACKED, TINY, apply, initialised

from as2jax.encoders import family as families
from as2jax.encoders import mpnet, transformer_folder, weights
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

SIZES = {
  **TINY,
  "type_vocab_size": 0,
  "position_offset": 2,
  "max_positions": 40,
  "relative_buckets": 8,
  "hidden_dropout": 0.0,
  "attention_dropout": 0.0,
}
SEQUENCES = [np.random.default_rng(n).integers(2, 61, n).astype(np.int32) for n in (4, 30, 6, 2, 9)]
LONG = [(1, 0), (2, 3, 4)]
KEYS = {
  "vocab_size": 61,
  "hidden_size": 16,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "intermediate_size": 24,
  "max_position_embeddings": 40,
  "relative_attention_num_buckets": 8,
  "layer_norm_eps": 1e-12,
}


def tiny(**fields):
  return mpnet.MPNetEncoder(**{**SIZES, **fields})


@pytest.mark.parametrize("fields", [{}, {"unroll": 1}])
def test_packing_and_padding_change_no_vector(fields):
  encoder = tiny(**fields)
  tokens, units = lay(SEQUENCES, ALONE, 30)
  params = initialised(encoder, tokens)
  expected = vectors(apply(encoder, params, tokens), units)
  tokens, units = lay(SEQUENCES, LONG, 36)
  actual = vectors(apply(encoder, params, tokens), units)
  for n in expected:
    np.testing.assert_allclose(actual[n], expected[n], atol=5e-6)


def test_buckets_by_hand():
  """Of 8: distances 0 and 1 have their own, then by the logarithm; keys behind the query from 4 on."""
  distance = np.asarray([0, -1, -2, -15, -16, -200, 1, 2, 15, 16, 200])
  assert mpnet.buckets(distance, 8).tolist() == [0, 1, 2, 2, 3, 3, 5, 6, 6, 7, 7]


def test_the_order_of_tokens_matters_by_the_bias_alone():
  encoder = tiny()
  tokens, units = lay(SEQUENCES, ALONE, 30)
  params = initialised(encoder, tokens)
  without = {**params, "relative_bias": 0 * params["relative_bias"]}
  actual, plain = (vectors(apply(encoder, p, tokens), units) for p in (params, without))
  assert all(np.abs(actual[n] - plain[n]).max() > 1e-3 for n in actual)


def test_a_folder_is_read(tmp_path):
  from safetensors.numpy import save_file

  encoder = tiny()
  tokens, _ = lay(SEQUENCES, PACKED, 40)
  params = initialised(encoder, tokens)
  (tmp_path / "config.json").write_text(
    json.dumps({**KEYS, "model_type": "mpnet", "relative_attention_num_buckets": 8})
  )
  tensors = weights.to_tensors(params, family=mpnet.MPNET)
  prefixed = {f"mpnet.{name}": x for name, x in tensors.items()}
  save_file({**prefixed, "lm_head.bias": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
  family, fields = transformer_folder.read_family(tmp_path)
  assert family is mpnet.MPNET and families.of(encoder) is family
  section = {"name": family.name, "dtype": "float32", "unroll": 0, "remat": False}
  opened = registry.build(registry.ENCODERS, section, "encoder", precision=None, **fields)
  assert opened.relative_buckets == 8 and opened.max_length == 38
  actual = transformer_folder.load_params(tmp_path, opened)
  np.testing.assert_array_equal(actual["relative_bias"], params["relative_bias"])
  (tmp_path / "config.json").write_text(
    json.dumps({**KEYS, "model_type": "mpnet", "relative_attention_num_buckets": 2})
  )
  with pytest.raises(InputError, match="relative_attention_num_buckets is 2"):
    transformer_folder.read_family(tmp_path)
