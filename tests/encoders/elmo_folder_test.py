"""ELMo folders: what is read, and one clear error for each thing that is wrong."""

import json

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_elmo
from rows import lay

from as2jax.encoders import elmo
from as2jax.encoders.elmo import ElmoEncoder
from as2jax.runtime.errors import InputError

OPTIONS = tiny_elmo.options()
W = tiny_elmo.cell(1, 0) + "W_P_0"
RUNS = {"mix": "uniform", "unroll": 1, "precision": None}


@pytest.fixture
def folder(tmp_path):
  return tiny_elmo.write(tmp_path, OPTIONS, tiny_elmo.datasets(OPTIONS))


def refused(folder, message):
  with pytest.raises(InputError, match=message):
    elmo.load(folder)


def test_fields_and_parameters_fit_each_other(folder):
  fields, params = elmo.load(folder)
  assert fields == {
    "num_characters": 262,
    "character_dim": 3,
    "filters": ((1, 2), (3, 5)),
    "max_characters": 8,
    "activation": "tanh",
    "num_highways": 1,
    "num_layers": 2,
    "cell_size": 6,
    "projection_dim": 4,
    "cell_clip": 1.0,
    "projection_clip": 0.7,
    "skip_connections": True,
  }
  encoder = ElmoEncoder(**fields, **RUNS)
  hash(encoder)  # a static argument of jitted functions
  tokens, _ = lay([np.arange(3)], [(0,)], 4)
  tokens = tokens.replace(inputs={"characters": jnp.zeros((1, 1, 4, 8), jnp.int32)})
  shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), tokens, train=False))["params"]
  spec = lambda x: (x.shape, np.dtype(x.dtype))
  assert jax.tree.map(spec, params) == jax.tree.map(spec, shapes)
  total = sum(x.size for x in tiny_elmo.datasets(OPTIONS).values())
  assert sum(x.size for x in jax.tree.leaves(params)) == total


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
  assert not any(name.startswith("highway") for name in params["characters"])


CNN, LSTM = OPTIONS["char_cnn"], OPTIONS["lstm"]


@pytest.mark.parametrize(
  "name, content, message",
  [
    ("options.json", {**OPTIONS, "char_cnn": {**CNN, "n_characters": 261}}, "n_characters is 261.*262"),
    ("options.json", {**OPTIONS, "char_cnn": {**CNN, "filters": [[1, 2], [3]]}}, "not enough values"),
    ("options.json", {**OPTIONS, "lstm": {**LSTM, "dim": None}}, "lstm.dim is None"),
    ("options.json", {**OPTIONS, "lstm": {**LSTM, "cell_clip": -3}}, "lstm.cell_clip is -3"),
    ("options.json", [], "holds no JSON object; is it of an ELMo"),
    ("options.json", None, "there must be one, found none"),
    ("lm_weights.hdf5", None, "there must be one, found none"),
  ],
)  # fmt: skip
def test_a_file_that_is_missing_or_means_nothing_is_named(folder, name, content, message):
  (folder / name).unlink()
  if content is not None:
    (folder / name).write_text(json.dumps(content))
    message = f"{name}.*{message}"
  refused(folder, message)


@pytest.mark.parametrize(
  "change, message",
  [
    ({W: None}, f"'{W}' is None.*\\[6, 4\\]"),
    ({W: np.zeros((5, 4))}, f"'{W}' is .*\\(5, 4\\).*\\[6, 4\\]"),
    ({"CNN/b_cnn_0": np.array([0, np.nan])}, "'CNN/b_cnn_0' holds 1 of.*at \\[1\\]"),
  ],
)
def test_datasets_that_do_not_fit(tmp_path, change, message):
  tensors = {**tiny_elmo.datasets(OPTIONS), **change}
  tiny_elmo.write(tmp_path, OPTIONS, {k: v for k, v in tensors.items() if v is not None})
  refused(tmp_path, "lm_weights.hdf5.*" + message)


def test_files_that_are_no_hdf5(folder):
  file = folder / "lm_weights.hdf5"
  whole = file.read_bytes()
  for size in (0, 600, len(whole) // 2, len(whole) - 1):
    file.write_bytes(whole[:size])
    refused(folder, "lm_weights.hdf5: not a whole HDF5 file.*fetch or copy it again")
