"""ELMo: the original code's recordings, plain numpy, packing, carried state, mixes."""

import functools
import json
import tempfile
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_elmo
from rows import lay, vectors
from tiny import real_data
from tiny_transformers import apply

from as2jax.encoders import elmo
from as2jax.encoders.elmo import ElmoEncoder, LayerMix
from as2jax.runtime.errors import InputError

SENTENCES = [
  ["Who", "sells", "ice", "?"],
  ["Merchants", "did", ",", "says", "the", "café", "€100"],
  ["Ice"],
  ["internationalisation", "of", "trade"],
  ["a", "b", "a", "b", "a"],
]
ALONE = [(n,) for n in range(5)]
PACKED = [(1, 0), (2, 3, 4)]
RUNS = {"mix": "uniform", "unroll": 1, "precision": "highest"}


@functools.cache
def tiny(lstm=(), characters=(), **fields):
  """(encoder, params, options, tensors) of a random biLM; `lstm` and `characters` as items."""
  options = tiny_elmo.options(dict(lstm), dict(characters))
  tensors = tiny_elmo.datasets(options)
  with tempfile.TemporaryDirectory() as folder:
    actual, params = elmo.load(tiny_elmo.write(Path(folder), options, tensors))
  return ElmoEncoder(**{**actual, **RUNS, **fields}), params, options, tensors


def laid(rows, length, sentences=SENTENCES, max_characters=8, **arguments):
  tokens, units = lay(tiny_elmo.numbered(sentences), rows, length, **arguments)
  tokens = tiny_elmo.with_characters(tokens, sentences, max_characters)
  return tokens.replace(inputs=jax.tree.map(jnp.asarray, tokens.inputs)), units


def test_top_layer_equals_the_recordings_of_the_first_sentences():
  # The original code carries its state on from batch to batch; here each sentence begins anew.
  folder = real_data("elmo")
  fields, params = elmo.load(folder)
  encoder = ElmoEncoder(**{**fields, **RUNS})
  lists = json.loads((folder / "lm_embeddings_sentences.json").read_text())
  sentences = [texts[0].split() for texts in lists]
  tokens, units = laid(
    [(0,), (1,), (2,)], max(map(len, sentences)), sentences, fields["max_characters"]
  )
  actual = vectors(apply(encoder, params, tokens, all_layers=True)[-1], units)
  for k in range(3):
    with h5py.File(folder / f"lm_embeddings_{k}.hdf5") as file:
      expected = np.concatenate(list(file["0"][...]), axis=-1)
    assert len(expected) == len(sentences[k]) > 3
    np.testing.assert_allclose(actual[k], expected, atol=1e-5, rtol=0)


VARIANTS = [
  ((), ()),
  ((("use_skip_connections", False), ("cell_clip", 0.5)), (("n_highway", 2),)),
  ((("dim", 5), ("n_layers", 3)), (("activation", "relu"), ("n_highway", 0))),
]


@pytest.mark.parametrize("lstm, characters", VARIANTS)
def test_every_layer_of_packed_rows_equals_numpy(lstm, characters):
  encoder, params, options, tensors = tiny(lstm, characters)
  packed, shards = laid(PACKED, 12, unused=1), laid([(4, 3, 2, 0, 1), ()], 20, shards=2)
  for tokens, units in (packed, shards):
    layers = [vectors(layer, units) for layer in apply(encoder, params, tokens, all_layers=True)]
    assert len(layers) == 1 + encoder.num_layers
    for n, words in enumerate(SENTENCES):
      expected = tiny_elmo.reference(tensors, options, words)
      for layer, actual in enumerate(layers):
        np.testing.assert_allclose(actual[n], expected[layer], atol=2e-6, rtol=0)


def test_mixes():
  encoder, params, _, _ = tiny()
  tokens, _ = laid(PACKED, 12)
  layers = np.asarray(apply(encoder, params, tokens, all_layers=True))
  assert layers.shape == (3, 1, 2, 12, 8)
  np.testing.assert_array_equal(layers[0, ..., :4], layers[0, ..., 4:])
  run = lambda mix, params=params: apply(encoder.clone(mix=mix), params, tokens)
  np.testing.assert_allclose(run("uniform"), layers.mean(0), atol=1e-6)
  for mix, layer in (("top", 2), (1, 1), ("1", 1)):
    np.testing.assert_array_equal(run(mix), layers[layer])
  learned = encoder.clone(mix="learned")
  shapes = jax.eval_shape(lambda: learned.init(jax.random.key(0), tokens, train=False))["params"]
  assert shapes.keys() - params.keys() == {"layer_mix"}
  fresh = {"layer_mix": LayerMix().init(jax.random.key(0), jnp.zeros((3, 1)))["params"], **params}
  np.testing.assert_allclose(run("learned", fresh), layers.mean(0), atol=1e-6)
  weights, gamma = np.array([0.5, -1, 2], np.float32), np.float32(1.5)
  expected = 1.5 * np.einsum("k,k...->...", np.exp(weights) / np.exp(weights).sum(), layers)
  mixed = {**params, "layer_mix": {"weights": weights, "gamma": gamma}}
  np.testing.assert_allclose(run("learned", mixed), expected, atol=1e-6)


def test_input_offset_is_added_to_what_each_direction_reads():
  encoder, params, _, _ = tiny()
  tokens, units = laid(PACKED, 12)
  offset = np.random.default_rng(0).normal(size=(1, 2, 12, 8)).astype(np.float32)
  plain = apply(encoder, params, tokens, all_layers=True)
  actual = apply(encoder, params, tokens, input_offset=jnp.asarray(offset), all_layers=True)
  np.testing.assert_allclose(actual[0], plain[0] + offset, atol=1e-6)
  # The two directions never meet: an offset in the first half leaves the backward one alone.
  offset[..., 4:] = 0
  half = apply(encoder, params, tokens, input_offset=jnp.asarray(offset), all_layers=True)
  np.testing.assert_array_equal(half[..., 4:], plain[..., 4:])
  for n, vector in vectors(half[2, ..., :4], units).items():
    assert np.abs(vector - vectors(plain[2, ..., :4], units)[n]).max() > 1e-3


def test_published_sizes():
  encoder = ElmoEncoder(**{**elmo.PUBLISHED, **RUNS, "mix": "learned"})
  tokens, _ = laid(PACKED, 12, max_characters=50)
  init = lambda: encoder.init(jax.random.key(0), tokens, train=False)["params"]
  shapes = jax.eval_shape(init)
  # The published 93.6 million, with the four parameters of the mix.
  assert sum(x.size for x in jax.tree.leaves(shapes)) == 93_600_848 + 4
  assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(shapes))
  assert ElmoEncoder.embedding_table(shapes).shape == (261, 16)
  out = jax.eval_shape(lambda p: apply(encoder, p, tokens, all_layers=True), shapes)
  assert out.shape == (3, 1, 2, 12, 1024)


@pytest.mark.parametrize(
  "fields, message",
  [
    ({"mix": "mean"}, "mix.*'mean'.*uniform.*from 0 to 2"),
    ({"mix": True}, "mix.*True"),
    ({"mix": "3"}, "mix.*3.*from 0 to 2"),
    ({"activation": "gelu"}, "activation.*gelu.*relu, tanh"),
    ({"unroll": 0}, "unroll.*0"),
  ],
)
def test_impossible_fields_are_named(fields, message):
  encoder, _, _, _ = tiny(**fields)
  tokens, _ = laid(ALONE, 7)
  with pytest.raises(InputError, match=message):
    encoder.init(jax.random.key(0), tokens, train=False)
