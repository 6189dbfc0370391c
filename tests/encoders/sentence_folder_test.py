"""Sentence-BERT folders against the library that writes them."""

import json
import shutil

import numpy as np
import pytest
import tiny_encoders
from tiny_encoders import TEXTS

import as2jax
from as2jax.encoders import sentence_folder
from as2jax.runtime.errors import InputError

MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
TOLERANCE = 1e-5


def library():
  """The original library and its modules."""
  library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is missing")
  from sentence_transformers.sentence_transformer import modules

  return library, modules


def assert_equal(folder, texts=TEXTS):
  original = library()[0].SentenceTransformer(str(folder), device="cpu")
  expected = original.encode(list(texts))
  assert np.abs(np.diff(expected, axis=0)).max() > 1e-2  # the texts are told apart
  actual = as2jax.load(folder).encode(texts)
  np.testing.assert_allclose(actual, expected, atol=TOLERANCE, rtol=0)
  return actual


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
  folder = tmp_path_factory.mktemp("bases")
  return {kind: tiny_encoders.folder(kind, folder / kind) for kind in ("bert", "roberta", "xlnet")}


def save(folder, base, mode, *layers, max_length=12, normalize=False, **settings):
  """A folder as the library writes it; `layers` are (size, activation, bias)."""
  import torch

  original, modules = library()
  torch.manual_seed(1)
  pooling = modules.Pooling(16, mode)
  width, parts = pooling.get_embedding_dimension(), []
  for size, activation, bias in layers:
    parts.append(modules.Dense(width, size, bias=bias, activation_function=activation))
    width = size
  parts += [modules.Normalize()] * normalize
  transformer = modules.Transformer(str(base), max_seq_length=max_length, **settings)
  original.SentenceTransformer(modules=[transformer, pooling, *parts], device="cpu").save(
    str(folder)
  )
  return folder


@pytest.mark.parametrize("mode", [*MODES, ("mean", "cls"), ("cls", "max", "weightedmean")])
def test_every_pooling_of_bert_equals_the_library(mode, bases, tmp_path):
  assert_equal(save(tmp_path / "x", bases["bert"], mode))


def test_xlnet_equals_the_library_given_types(bases, tmp_path):
  """Its tokeniser class of today gives no types unless asked; XLNet was trained with them."""
  names = ["input_ids", "token_type_ids", "attention_mask"]
  folder = save(
    tmp_path / "x",
    bases["xlnet"],
    ("mean", "lasttoken"),
    processor_kwargs={"model_input_names": names},
  )
  assert json.loads((folder / "tokenizer_config.json").read_text())["model_input_names"] == names
  assert_equal(folder)


def test_dense_layers_equal_the_library(bases, tmp_path):
  from torch import nn

  folder = save(
    tmp_path / "x",
    bases["roberta"],
    ("mean", "max"),
    (12, nn.Tanh(), True),
    (10, nn.GELU(), False),
    (9, nn.ReLU(), True),
    (7, nn.Identity(), True),
    normalize=True,
  )
  assert_equal(folder)
  assert sentence_folder.read(folder).fields == {
    "pooling": ("mean", "max"),
    "normalize": True,
    "dense": ((12, "tanh", True), (10, "gelu", False), (9, "relu", True), (7, "identity", True)),
  }


def test_lower_casing_equals_the_library(bases, tmp_path):
  base = tmp_path / "cased"
  shutil.copytree(bases["bert"], base)
  (base / "tokenizer_config.json").write_text('{"do_lower_case": false}')
  texts = ("how are caves FORMED", "Ice", "ICE IS COLD", "the ice")
  vectors = {}
  for lower in (True, False):
    folder = handmade(tmp_path / str(lower), base)
    change(folder / "0_Transformer" / "sentence_bert_config.json", do_lower_case=lower)
    vectors[lower] = assert_equal(folder, texts)
  assert np.abs(vectors[True] - vectors[False]).max() > 1e-3


def handmade(folder, base, *, dense=False, **pooling):
  """A folder of an early release: the transformer below it, flags, weights of torch if any."""
  shutil.copytree(base, folder / "0_Transformer")
  modules = [*FIRST]
  (folder / "1_Pooling").mkdir()
  flags = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True, **pooling}
  (folder / "1_Pooling" / "config.json").write_text(json.dumps(flags))
  (folder / "0_Transformer" / "sentence_bert_config.json").write_text('{"max_seq_length": 12}')
  if dense:
    from safetensors.numpy import save_file

    (folder / "2_Dense").mkdir()
    modules.append(("2_Dense", "sentence_transformers.models.Dense"))
    rng = np.random.default_rng(0)
    save_file(
      {
        "linear.weight": rng.normal(size=(5, 16)).astype(np.float32),
        "linear.bias": rng.normal(size=5).astype(np.float32),
      },
      str(folder / "2_Dense" / "model.safetensors"),
    )
    change(folder / "2_Dense" / "config.json", {}, in_features=16, out_features=5, bias=True)
  modules_of(folder, *modules)
  return folder


def change(file, content=None, **values):
  """Sets keys of a JSON file."""
  content = json.loads(file.read_text()) if content is None else content
  file.write_text(json.dumps({**content, **values}))


def test_a_folder_of_an_early_release_equals_the_library(bases, tmp_path):
  folder = handmade(tmp_path / "x", bases["bert"], dense=True)
  assert sentence_folder.read(folder).transformer == folder / "0_Transformer"
  assert sentence_folder.read(folder).fields["dense"] == ((5, "tanh", True),)
  assert_equal(folder)


def test_settings_are_read_from_the_file_that_an_early_release_named(tmp_path):
  base = tmp_path / "base"
  base.mkdir()
  (base / "config.json").write_text("{}")
  folder = handmade(tmp_path / "x", base)
  settings = folder / "0_Transformer" / "sentence_bert_config.json"
  change(settings, do_lower_case=True)
  settings.rename(settings.with_name("sentence_xlm-roberta_config.json"))
  actual = sentence_folder.read(folder)
  assert (actual.max_length, actual.lower_case) == (12, True)
  settings.with_name("sentence_xlm-roberta_config.json").unlink()
  for stated, expected in ((9, 9), (1e30, None), (None, None)):
    change(settings.with_name("tokenizer_config.json"), {}, model_max_length=stated)
    assert sentence_folder.read(folder).max_length == expected


def modules_of(folder, *kinds):
  (folder / "modules.json").write_text(
    json.dumps(
      [{"idx": i, "name": str(i), "path": path, "type": t} for i, (path, t) in enumerate(kinds)]
    )
  )


FIRST = [
  ("0_Transformer", "sentence_transformers.models.Transformer"),
  ("1_Pooling", "sentence_transformers.models.Pooling"),
]


@pytest.mark.parametrize(
  "breaks, message",
  [
    (lambda f: (f / "modules.json").unlink(), "modules.json is missing.*biencoder"),
    (lambda f: (f / "modules.json").write_text('{"a": 1}'), "modules.json: holds no list"),
    (lambda f: modules_of(f, *FIRST, ("2", "sentence_transformers.models.LSTM")), "LSTM is not"),
    (lambda f: modules_of(f, *FIRST, ("2", "mine.Module")), "mine.Module.*of its own"),
    (lambda f: modules_of(f, ("../x", FIRST[0][1]), FIRST[1]), "place of its own"),
    (lambda f: modules_of(f, FIRST[0]), "no Pooling follows"),
    (lambda f: (f / "1_Pooling" / "config.json").unlink(), "1_Pooling/config.json: absent, or"),
    (
      lambda f: change(f / "0_Transformer" / "sentence_bert_config.json", query_length=5),
      "sentence_bert_config.json: query_length is 5, which changes texts",
    ),
    (
      lambda f: change(f / "config_sentence_transformers.json", {}, default_prompt_name="p"),
      "default_prompt_name is 'p', none of its prompts",
    ),
    (lambda f: change(f / "1_Pooling" / "config.json", pooling_mode="sum"), "'sum'.*modes are cls"),
    (lambda f: change(f / "2_Dense" / "config.json", out_features=6), r"\(5, 16\).*\(6, 16\)"),
    (lambda f: change(f / "2_Dense" / "config.json", activation_function="torch.nn.SiLU"), "SiLU"),
    (
      lambda f: change(f / "2_Dense" / "config.json", module_input_name="token_embeddings"),
      "'token_embeddings'; only",
    ),
  ],
)
def test_what_cannot_be_read_is_named(breaks, message, tmp_path):
  base = tmp_path / "base"
  base.mkdir()
  (base / "config.json").write_text("{}")
  folder = handmade(tmp_path / "x", base, dense=True)
  sentence_folder.read(folder)
  breaks(folder)
  with pytest.raises(InputError, match=message):
    sentence_folder.read(folder)
