"""MPNet: against transformers, packed and alone, its buckets, its config and weights."""

import json

import numpy as np
import pytest
from rows import lay, vectors
from tiny_bert import ALONE, PACKED, TINY, apply, initialised, loss_and_gradient

from as2jax.encoders import mpnet
from as2jax.encoders.checkpoints import families, pretrained, published_shapes
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


def twin(params):
  """transformers' model with our parameters."""
  torch = pytest.importorskip("torch", reason="torch is not installed")
  transformers = pytest.importorskip("transformers")
  buckets = {"relative_attention_num_buckets": 32, "attn_implementation": "eager"}
  twin_config = transformers.MPNetConfig(**{**KEYS, **buckets})
  model = transformers.MPNetModel(twin_config, add_pooling_layer=False).eval()
  tensors = pretrained.to_tensors(params, family=families.MPNET)
  model.load_state_dict({name: torch.tensor(x) for name, x in tensors.items()}, strict=True)
  return torch, model


def test_hidden_states_and_gradients_are_those_of_transformers():
  """With 32 buckets, which the library computes with whatever its config says."""
  encoder = tiny(relative_buckets=32)
  tokens, units = lay(SEQUENCES, LONG, 34)
  params = initialised(encoder, tokens)
  torch, model = twin(params)
  every = np.asarray(apply(encoder, params, tokens, all_layers=True))
  weights = np.random.default_rng(1).normal(size=(1, 2, 34, 16)).astype(np.float32)
  weighed, loss = vectors(weights, units), 0.0
  for n, ids in enumerate(SEQUENCES):
    actual = model(torch.tensor(ids[None].astype(np.int64)), output_hidden_states=True)
    for hidden, theirs in zip(every, actual.hidden_states, strict=True):
      np.testing.assert_allclose(vectors(hidden, units)[n], theirs[0].detach().numpy(), atol=1e-5)
    loss = loss + (actual.last_hidden_state[0] * torch.tensor(weighed[n])).sum()
  loss.backward()
  real = np.where(np.asarray(tokens.segment)[..., None] > 0, weights, 0.0)
  value, gradient = loss_and_gradient(encoder, params, tokens, real)
  assert float(value) == pytest.approx(loss.item(), rel=1e-5)
  ours = pretrained.to_tensors(gradient, family=families.MPNET)
  theirs = {name: p.grad.numpy() for name, p in model.named_parameters()}
  assert ours.keys() == theirs.keys() and "encoder.relative_attention_bias.weight" in ours
  for name, expected in theirs.items():
    if name.endswith("attn.k.bias"):  # softmax ignores a shift of all keys: rounding is left
      assert np.abs(ours[name]).max() < 1e-4 and np.abs(expected).max() < 1e-4
      continue
    largest = np.abs(expected).max()
    np.testing.assert_allclose(ours[name] / largest, expected / largest, atol=1e-5)


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
  tensors = pretrained.to_tensors(params, family=families.MPNET)
  prefixed = {f"mpnet.{name}": x for name, x in tensors.items()}
  save_file({**prefixed, "lm_head.bias": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
  family, fields = pretrained.read_family(tmp_path)
  assert family is families.MPNET and families.of(encoder) is family
  section = {"name": family.name, "dtype": "float32", "unroll": 0, "remat": False}
  opened = registry.build(registry.ENCODERS, section, "encoder", precision=None, **fields)
  assert opened.relative_buckets == 8 and opened.max_length == 38
  actual = pretrained.load_params(tmp_path, opened)
  np.testing.assert_array_equal(actual["relative_bias"], params["relative_bias"])
  (tmp_path / "config.json").write_text(
    json.dumps({**KEYS, "model_type": "mpnet", "relative_attention_num_buckets": 2})
  )
  with pytest.raises(InputError, match="relative_attention_num_buckets is 2"):
    pretrained.read_family(tmp_path)


def test_mpnet_base_has_its_published_number_of_parameters():
  """109,486,464 with the pooler of 590,592 that transformers adds."""
  import jax

  family, fields = published_shapes.family("microsoft/mpnet-base")
  section = {"name": family.name, "dtype": "float32", "unroll": 0, "remat": False}
  encoder = registry.build(registry.ENCODERS, section, "encoder", precision=None, **fields)
  tokens, _ = lay(SEQUENCES, ALONE, 30)
  shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), tokens, train=False))["params"]
  assert sum(int(np.prod(x.shape)) for x in jax.tree.leaves(shapes)) == 109_486_464 - 590_592
