"""ELMo: the original code's recordings, plain numpy, packing, mixes; characters, and what folders hold."""

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
from tiny import real_data
from tiny_transformers import ALONE, PACKED, apply, lay, vectors

from as2jax.encoders import elmo
from as2jax.encoders.elmo import ElmoEncoder, LayerMix, sentence_boundaries, word_characters
from as2jax.runtime.errors import InputError

SENTENCES = [
  ["Who", "sells", "ice", "?"],
  ["Merchants", "did", ",", "says", "the", "café", "€100"],
  ["Ice"],
  ["internationalisation", "of", "trade"],
  ["a", "b", "a", "b", "a"],
]
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


BEGIN, END, PAD = 259, 260, 261  # in the biLM's vocabulary 258, 259 and 260; ids are one more


@pytest.mark.parametrize(
  "word, size, content",
  [
    ("cat", 50, b"cat"),
    ("", 50, b""),
    ("é€", 10, "é€".encode()),
    ("a\ud800b", 6, b"ab"),  # a lone surrogate has no bytes
    ("x" * 500, 50, b"x" * 48),
    ("€€€", 10, "€€€".encode()[:8]),  # the last character is cut in the middle
  ],
)
def test_a_word_is_its_bytes_between_two_marks(word, size, content):
  ids = [BEGIN, *(byte + 1 for byte in content), END]
  actual = word_characters([word], size)
  assert actual.dtype == np.int32
  assert actual[0].tolist() == ids + [PAD] * (size - len(ids))


def test_sentence_marks():
  assert sentence_boundaries(4).tolist() == [[BEGIN, mark, END, PAD] for mark in (257, 258)]


OPTIONS = tiny_elmo.options()
W = tiny_elmo.cell(1, 0) + "W_P_0"


@pytest.fixture
def folder(tmp_path):
  return tiny_elmo.write(tmp_path, OPTIONS, tiny_elmo.datasets(OPTIONS))


def refused(folder, message):
  with pytest.raises(InputError, match=message):
    elmo.load(folder)


def test_published_names_and_files_beside_the_weights(folder):
  expected = elmo.load(folder)
  stem = "elmo_2x4096_512_2048cnn_2xhighway_"
  (folder / "options.json").rename(folder / f"{stem}options.json")
  (folder / "lm_weights.hdf5").rename(folder / f"{stem}weights.hdf5")
  with h5py.File(folder / "lm_embeddings_0.hdf5", "w") as file:
    file["0"] = np.zeros((2, 3, 4))
  with h5py.File(folder / f"{stem}weights.hdf5", "a") as file:
    file["softmax/W"] = np.zeros((9, 4))
  actual = elmo.load(folder)
  assert actual[0] == expected[0]
  for a, b in zip(*map(jax.tree.leaves, (actual[1], expected[1])), strict=True):
    np.testing.assert_array_equal(a, b)


def test_absent_options_are_what_the_original_code_takes_them_for(tmp_path):
  options = tiny_elmo.options()
  del options["lstm"]["use_skip_connections"]
  del options["char_cnn"]["n_highway"]
  fields, params = elmo.load(tiny_elmo.write(tmp_path, options, tiny_elmo.datasets(options)))
  assert fields["skip_connections"] is False and fields["num_highways"] == 0
  assert fields["max_characters"] == 8
  assert not any(name.startswith("highway") for name in params["characters"])


CNN, LSTM = OPTIONS["char_cnn"], OPTIONS["lstm"]


@pytest.mark.parametrize(
  "name, content, message",  # of a file, or of datasets beside the others
  [
    ("options.json", {**OPTIONS, "char_cnn": {**CNN, "n_characters": 261}}, "n_characters is 261.*262"),
    ("options.json", {**OPTIONS, "char_cnn": {**CNN, "filters": [[1, 2], [3]]}}, "not enough values"),
    ("options.json", {**OPTIONS, "lstm": {**LSTM, "dim": None}}, "lstm.dim is None"),
    ("options.json", {**OPTIONS, "lstm": {**LSTM, "cell_clip": -3}}, "lstm.cell_clip is -3"),
    ("options.json", [], "holds no JSON object; is it of an ELMo"),
    ("options.json", None, "there must be one, found none"),
    ("lm_weights.hdf5", None, "there must be one, found none"),
    ("lm_weights.hdf5", {W: None}, f"'{W}' is None.*\\[6, 4\\]"),
    ("lm_weights.hdf5", {W: np.zeros((5, 4))}, f"'{W}' is .*\\(5, 4\\).*\\[6, 4\\]"),
    ("lm_weights.hdf5", {"CNN/b_cnn_0": np.array([0, np.nan])}, "'CNN/b_cnn_0' holds 1 of.*at \\[1\\]"),
  ],
)  # fmt: skip
def test_what_is_missing_means_nothing_or_does_not_fit_is_named(folder, name, content, message):
  (folder / name).unlink()
  if content is not None and name == "options.json":
    (folder / name).write_text(json.dumps(content))
  elif content is not None:
    tensors = {**tiny_elmo.datasets(OPTIONS), **content}
    tiny_elmo.write(folder, OPTIONS, {k: v for k, v in tensors.items() if v is not None})
  refused(folder, message if content is None else f"{name}.*{message}")


def test_files_that_are_no_hdf5(folder):
  file = folder / "lm_weights.hdf5"
  whole = file.read_bytes()
  for size in (0, 600, len(whole) // 2, len(whole) - 1):
    file.write_bytes(whole[:size])
    refused(folder, "lm_weights.hdf5: not a whole HDF5 file.*fetch or copy it again")
