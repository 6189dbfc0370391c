"""XLNet: packing, gradients, and what the original code recorded; parity is in parity_test."""

import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import lay, vectors
from tiny_bert import apply, loss_and_gradient
from tiny_xlnet import ALONE, PACKED, SEQUENCES, TYPES, full_rows, hf_weights, tiny

from as2jax.encoders.weights import from_tensors
from as2jax.encoders.xlnet import XLNetEncoder
from as2jax.layers import transformer
from as2jax.runtime.errors import InputError


@pytest.fixture(scope="module")
def params():
  return from_tensors(hf_weights(), tiny(), "here")


def test_packing_padding_and_shards_change_no_vector(params):
  tokens, units = lay(SEQUENCES, ALONE, 9, types=TYPES)
  last = apply(tiny(), params, tokens)
  np.testing.assert_array_equal(last, apply(tiny(), params, tokens, all_layers=True)[-1])
  expected = vectors(last, units)
  spread = np.std(np.concatenate(list(expected.values())), axis=0)
  assert spread.min() > 0.05  # the comparison below is not one of constants
  for rows, length, shards in ((PACKED, 16, 1), (PACKED, 19, 2), ([(4, 3, 2), (0, 1)], 16, 2)):
    tokens, units = lay(SEQUENCES, rows, length, shards=shards, types=TYPES)
    actual = vectors(apply(tiny(), params, tokens), units)
    for n in expected:
      np.testing.assert_allclose(actual[n], expected[n], atol=3e-6)


def test_types_count_only_as_same_or_other(params):
  output = lambda types: apply(tiny(), params, lay(SEQUENCES, PACKED, 16, types=types)[0])
  as_typed = output(TYPES)
  np.testing.assert_array_equal(as_typed, output([2 - x for x in TYPES]))
  assert np.abs(as_typed - output(None)).max() > 0.1


@pytest.mark.parametrize(
  "fields", [pytest.param({"unroll": 1}, marks=pytest.mark.slow), {"remat": True, "unroll": 2}]
)
def test_execution_choices_change_no_parameter_output_or_gradient(params, fields):
  tokens, _ = lay(SEQUENCES, PACKED, 16, types=TYPES)
  weights = jnp.asarray(np.random.default_rng(0).normal(size=(1, 2, 16, 16)), jnp.float32)
  plain, chosen = tiny(), tiny(**fields)
  init = lambda module: jax.jit(lambda: module.init(jax.random.key(0), tokens, train=False))()
  for a, b in zip(jax.tree.leaves(init(plain)), jax.tree.leaves(init(chosen)), strict=True):
    np.testing.assert_array_equal(a, b)
  expected = loss_and_gradient(plain, params, tokens, weights)
  actual = loss_and_gradient(chosen, params, tokens, weights)
  undropped = (apply(plain, params, tokens) * weights).sum()
  assert abs(expected[0] - undropped) > 0.1  # dropout is on, and the same in both
  for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * np.abs(a).max())


def test_each_site_of_each_layer_has_its_own_key(params, monkeypatch):
  seen = []

  def recorded(key, x, rate):
    jax.debug.callback(lambda data: seen.append(tuple(data.tolist())), jax.random.key_data(key))
    return x

  monkeypatch.setattr(transformer, "dropout", recorded)
  tokens, _ = lay(SEQUENCES, ALONE, 9)
  # A step of its own, so that no compiled program of another test is found in its place.
  run = jax.jit(
    lambda key: tiny().apply({"params": params}, tokens, train=True, rngs={"dropout": key})
  )
  run(jax.random.key(0)), run(jax.random.key(1)), jax.effects_barrier()
  sites = 3 + 4 * 2  # embeddings, sinusoids, output; softmax, inner layer, residuals of each layer
  assert len(seen) == len(set(seen)) == 2 * sites


def test_input_offset_is_added_to_the_embeddings(params):
  tokens, _ = lay(SEQUENCES, PACKED, 16)
  role = np.random.default_rng(0).normal(size=16).astype(np.float32)
  actual = apply(tiny(), params, tokens, input_offset=jnp.broadcast_to(role, (1, 2, 16, 16)))
  moved = {**params, "embeddings": {"word": params["embeddings"]["word"] + role[None]}}
  np.testing.assert_allclose(actual, apply(tiny(), moved, tokens), atol=1e-5)
  assert np.abs(actual - apply(tiny(), params, tokens)).max() > 0.1


def test_every_parameter_and_no_other_unit_gets_gradient(params):
  tokens, units = lay(SEQUENCES, PACKED, 16, types=TYPES)
  weights = np.zeros((1, 2, 16, 16), np.float32)
  start, size = int(units.start[0, 0]), int(units.length[0, 0])
  weights[0, 0, start : start + size] = np.random.default_rng(0).normal(size=(size, 16))
  gradients = loss_and_gradient(tiny(), params, tokens, jnp.asarray(weights))[1]
  rows = np.flatnonzero(np.abs(XLNetEncoder.embedding_table(gradients)).sum(-1))
  assert set(rows) == set(SEQUENCES[1])  # the first unit's ids alone
  for path, leaf in jax.tree_util.tree_leaves_with_path(gradients["layers"]):
    assert (np.abs(leaf).reshape(2, -1).max(-1) > 1e-6).all(), path


@pytest.mark.parametrize(
  "fields, message",
  [
    ({"num_heads": 3}, "num_heads.*3.*16"),
    ({"hidden_size": 15, "num_heads": 3}, "hidden_size.*15 is odd"),
    ({"activation": "swish"}, "activation.*swish.*gelu"),
    ({"attention_type": "both"}, "attention_type.*both.*bi, uni"),
    ({"dtype": "float16"}, "dtype.*float16.*bfloat16"),
    ({"unroll": -1}, "unroll.*-1"),
  ],
)
def test_impossible_fields_are_named(fields, message):
  tokens, _ = lay(SEQUENCES, ALONE, 9)
  with pytest.raises(InputError, match=message):
    tiny(**fields).init(jax.random.key(0), tokens, train=False)


def from_original(variables, layers):
  """Variables of the original code as tensors of transformers: biases may hold all layers."""
  leaves = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
  tensors = {}
  for name, value in variables.items():
    stem, _, rest = name.partition("model/transformer/")
    if stem or not rest or rest.startswith("mask_emb"):
      continue
    if rest == "word_embedding/lookup_table":
      tensors["word_embedding.weight"] = value
    elif not rest.startswith("layer_"):
      rank = 3 if rest == "seg_embed" else 2
      for n in range(layers):
        tensors[f"layer.{n}.rel_attn.{rest}"] = value[n] if value.ndim > rank else value
    else:
      layer, part, *inner, leaf = rest.split("/")
      place = f"layer.{layer.removeprefix('layer_')}.{part}"
      if part == "rel_attn" and leaf == "kernel":
        tensors[f"{place}.{inner[0]}"] = value
      else:
        within = inner[0].replace("LayerNorm", "layer_norm")
        tensors[f"{place}.{within}.{leaves[leaf]}"] = value.T if leaf == "kernel" else value
  return tensors


def recording(folder):
  """(folder, encoder, params, tokens) of one of the original's tiny checkpoints."""
  from safetensors.numpy import load_file

  path = pathlib.Path(os.environ.get("AS2JAX_DATA", ""), "xlnet_tiny", folder)
  if "AS2JAX_DATA" not in os.environ or not path.exists():
    pytest.skip("needs XLNet's recordings: set AS2JAX_DATA to the folder that holds xlnet_tiny/")
  variables = load_file(path / "xlnet_model.tf_names.safetensors")
  sizes = dict(vocab_size=31, hidden_size=6, num_heads=2, intermediate_size=12)
  # They were recorded with causal attention, and the original code's `gelu` is the tanh form.
  encoder = tiny(**sizes, attention_type="uni", activation="gelu_new")
  tokens = full_rows(np.load(path / "input_ids.npy"), np.load(path / "seg_ids.npy"))
  params = from_tensors(from_original(variables, 2), encoder, str(path))
  return path, encoder, params, tokens


def test_original_recording_without_mems_and_with_tied_biases():
  path, encoder, params, tokens = recording("test_checkpoint_empty")
  expected = np.load(path / "empty_output.npy")
  np.testing.assert_allclose(apply(encoder, params, tokens)[0], expected, atol=1e-6, rtol=0)
  both_ways = apply(encoder.clone(attention_type="bi"), params, tokens)[0]
  assert np.abs(both_ways - expected).max() > 1e-3  # the recording does tell the two apart
