"""Frozen encoders: their word vectors are those of each sentence alone, and are computed once."""

import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import tiny
import tiny_elmo
import tiny_encoders
from flax import traverse_util
from tiny_systems import feature_based
from tiny_transformers import lay
from tokenise_test import letters

from as2jax.config import recipes
from as2jax.data.record import Candidate, Question
from as2jax.data.text import word_tokenizer
from as2jax.data.text.tokenise import build_units
from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.data.text.word_tokenizer import entries
from as2jax.encoders import open_encoder, piece_vectors, static, transformer_folder, word_vectors
from as2jax.encoders.elmo import word_characters
from as2jax.encoders.frozen_vectors import FrozenEncoder, word_table
from as2jax.encoders.frozen_vectors import key as vectors_key
from as2jax.evaluation import results
from as2jax.inference import modes
from as2jax.runtime.errors import InputError
from as2jax.training import build

ASKED, ANSWER, *_, LONG = tiny_encoders.TEXTS
OFFERED = (ANSWER, "ice", "Isn't it 60.5 m high?", "\u200b", LONG)
QUESTION = Question(
  "Q", ASKED, tuple(Candidate(f"C{i}", text, i % 2) for i, text in enumerate(OFFERED))
)


def glove(path):
  words = "how are glacier caves formed a ice is it high very long move slowly the of in".split()
  table = np.random.default_rng(0).normal(size=(len(words), 8))
  word_vectors.write(path, words, table.astype(np.float32))
  return lambda config: recipes.static(config, str(path), lower=True)


def words_alone(parts, texts):
  """The word vectors of each text, by the encoder on a row of that text alone."""
  source, frozen = parts.source, parts.inputs[0].encoder
  params = traverse_util.unflatten_dict(dict(source.params), sep="/")
  run = jax.jit(
    lambda tokens: source.module.apply(
      {"params": params}, tokens, all_layers=frozen.all_layers, train=False
    )
  )
  word_vectors = []
  for text in texts:
    tokenizer, characters = source.tokenizer_of([text]), None
    if source.open_vocabulary:
      characters = word_characters(entries(tokenizer), source.module.max_characters)
    units = build_units([(text,)], tokenizer, template="single", max_length=64, words=True)
    tokens, _ = lay([units.ids], [(0,)], 64, types=[units.type])
    if characters is not None:
      tokens = tokens.replace(inputs={"characters": characters[np.asarray(tokens.ids)]})
    hidden = np.asarray(run(tokens), np.float64)
    hidden = hidden[..., 0, 0, : len(units.ids), :]
    if frozen.all_layers:
      hidden = np.moveaxis(hidden, 0, 1)
    spans = zip(units.word_start, units.word_length, strict=True)
    means = [hidden[a : a + k].mean(0) for a, k in spans] or [np.zeros(hidden.shape[-1])]
    word_vectors.append(
      hidden if parts.provenance["family"] in ("elmo", "static") else np.stack(means)
    )
  return word_vectors


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlnet", "elmo", "learned", "glove"])
def test_features_of_a_packed_table_are_those_of_each_sentence_alone(kind, tmp_path):
  encoder = {
    "elmo": lambda: tiny_elmo.recipe(tmp_path / "x"),
    "glove": lambda: glove(tmp_path / "x"),
    "learned": lambda: tiny_elmo.recipe(tmp_path / "x", mix="learned"),
  }.get(kind, lambda: tiny_encoders.folder(kind, tmp_path / "x"))()
  job_config = feature_based(encoder, tmp_path)
  parts = build.load(job_config)
  assert not parts.pretrained  # no part of the state
  tables = parts.tables((QUESTION,), "sentences")
  texts = [QUESTION.text, *(c.text for c in QUESTION.candidates)]
  assert len(tables.units) == len(texts) and list(tables.inputs) == ["frozen_vectors"]
  level, vectors = tables.inputs["frozen_vectors"]
  assert level == "token"
  for u, alone in enumerate(words_alone(parts, texts)):
    actual = vectors[slice(*tables.units.offsets[u : u + 2])]
    np.testing.assert_allclose(actual, alone, atol=1e-5)
  assert len(vectors) == len(tables.units.ids) > 20
  if kind == "learned":
    assert vectors.shape[1:] == (3, 8)
  if kind == "bert":
    assert np.abs(vectors).max(1).min() == 0  # of the text without a word
  (entry,) = parts.inputs
  assert entry.spec() == (vectors.shape[1:], vectors.dtype)
  assert entry.statistics(None, tables.units) == {"storage": "float32", "encoder_calls": 1}
  parts.tables((QUESTION,), "sentences")
  assert entry.encoder.calls == 1


def test_other_weights_or_fields_never_share_a_cache(tmp_path):
  from safetensors.numpy import load_file, save_file

  first = tiny_encoders.folder("bert", tmp_path / "a")
  second = tiny_encoders.folder("bert", tmp_path / "b")
  tensors = load_file(second / "model.safetensors")
  name = next(n for n in tensors if n.endswith("output.dense.weight"))
  tensors[name][0] += 0.1
  save_file(tensors, str(second / "model.safetensors"), metadata={"format": "pt"})
  values = {}
  for key, folder, fields in (
    ("a", first, {}),
    ("b", second, {}),
    ("half", first, {"model.storage": "float16"}),
    ("wide", first, {"encoder.dtype": "bfloat16"}),
    ("dropout", first, {"encoder.hidden_dropout": 0.3}),
  ):
    job_config = feature_based(folder, tmp_path / "cache")
    with job_config.unlocked():
      job_config.update_from_flattened_dict(fields)
    parts = build.load(job_config)
    column = parts.tables((QUESTION,), "sentences").inputs["frozen_vectors"]
    values[key] = column.values, parts.inputs[0].encoder.calls
  assert [calls for _, calls in values.values()] == [1, 1, 1, 1, 0]  # dropout is not used
  assert np.abs(values["a"][0] - values["b"][0]).max() > 1e-5
  assert values["half"][0].dtype == np.float16
  np.testing.assert_allclose(values["a"][0], values["half"][0], atol=5e-3)


@pytest.mark.slow
def test_a_run_calls_the_encoder_for_its_first_epoch_alone(tmp_path):
  folder = tiny_encoders.folder("bert", tmp_path / "bert")
  calls = {}
  for name, epochs, seeds in (("two", 2, (0, 1)), ("one", 1, (0,))):
    cache = tmp_path / f"cache-{name}"
    job_config = feature_based(folder, cache, epochs=epochs, seeds=seeds)
    modes.run(job_config, str(tmp_path / name))
    content = results.read(tmp_path / name)
    calls[name] = content["inputs"]["frozen_vectors"]["encoder_calls"]
    assert content["seeds"][0]["steps"] > 0
  assert calls["one"] == calls["two"] > 0
  before = {p: p.stat().st_mtime_ns for p in cache.glob("features/*/*")}
  modes.run(job_config, str(tmp_path / "again"))
  again = results.read(tmp_path / "again")
  assert again["inputs"]["frozen_vectors"] == {"storage": "float32", "encoder_calls": 0}
  assert again["metrics"] == content["metrics"]
  assert {p: p.stat().st_mtime_ns for p in cache.glob("features/*/*")} == before
  moved = tiny.best_parameters(tmp_path / "one")
  assert moved and not any(path.startswith("encoder") for path in moved)


def test_what_cannot_be_stored_is_named():
  for value, storage in ((1e6, "float16"), (np.nan, "float32")):
    with pytest.raises(InputError, match=f"is not finite in {storage}: set model.storage"):
      FrozenEncoder._stored(SimpleNamespace(storage=storage), np.full((5, 3), value, np.float32))


def table(texts, **options):
  return build_units(
    [(text,) for text in texts], letters(), template="single", max_length=9, words=True, **options
  )


def test_words_take_the_place_of_tokens():
  units = table(["ab c", "\u200b", "dcb"], roles=[0, 1, 1])  # the second has no token
  words = word_table(units, of_words=False)
  assert words.units.offsets.tolist() == [0, 2, 3, 4]
  assert words.first.tolist() == [1, 3, 0, 1] and words.length.tolist() == [2, 1, 0, 3]
  assert words.units.ids.tolist() == [0, 1, 3, 2] and words.units.forms == ("ab", "c", "dcb")
  assert words.units.role.tolist() == [0, 0, 1, 1] and words.units.type.tolist() == [0] * 4
  # The words of the table are the tokens that stand for one.
  assert words.units.word_offsets.tolist() == [0, 2, 2, 3]
  assert words.units.word_start.tolist() == [0, 1, 0]
  assert words.units.word_length.tolist() == [1, 1, 1]
  same = word_table(units, of_words=True)
  assert same.units is units and same.first.tolist() == [0, 1, 2, 3, 4, 0, 1, 0, 1, 2, 3, 4]
  assert same.length.tolist() == [1] * len(units.ids)


def test_the_key_is_of_all_that_the_encoder_reads():
  def key(texts=("a", "b c"), inputs={}, settings="w"):
    units = table(texts)
    return vectors_key(units, word_table(units, of_words=False), inputs, settings)

  letters = np.zeros((9, 4), np.int32)
  keys = {
    key(),
    key(("b c", "a")),
    key(("a", "bc")),
    key(settings="other"),
    key(inputs={"characters": letters}),
    key(inputs={"characters": letters + 1}),
    key(("a", "b c", "d")),
  }
  assert len(keys) == 7 and key() == key()


MARKS = ("[CLS]", "[SEP]")
TEXTS = ("The cat, the dog!", "a DOG's café", "the a")
SECTION = {
  "name": "words",
  "pretrained": "",
  "vocabulary": "train",
  "size": 0,
  "scale": 1.0,
  "marks": MARKS,
  "hidden_dropout": 0.0,
}


@pytest.fixture(scope="module")
def bert():
  folder = tiny.encoder_folder()
  table = transformer_folder.load_params(folder, tiny.encoder_module())["embeddings"]["word"]
  return folder, load_tokenizer(folder), np.asarray(table)


def test_words_take_their_row_or_the_mean_of_their_pieces(bert):
  folder, pieces, table = bert
  actual = piece_vectors.prepare(TEXTS, folder, size=0, marks=MARKS)
  entries = word_tokenizer.entries(actual.tokenizer)
  # By frequency, then by the alphabet; split and cleaned as BERT does it.
  assert entries == "[PAD] [UNK] [CLS] [SEP] the a dog ! ' , cafe cat s".split()
  assert not actual.table[0].any()
  assert len(pieces.encode(["cafe"]).ids) > 1
  for word, row in zip(entries[1:], actual.table[1:]):
    ids = pieces.encode([word]).ids
    np.testing.assert_allclose(row, table[ids].mean(0), rtol=1e-6, atol=1e-7, err_msg=word)
  encoded = actual.tokenizer.encode(["THE zebra, Cat"])
  assert actual.tokenizer.tokens(encoded.ids) == ["the", "[UNK]", ",", "cat"]
  special = actual.tokenizer.special
  assert [i for i, _ in special.single_before + special.single_after] == [2, 3]
  assert (actual.statistics["types"], actual.statistics["tokens"]) == (9, 13)


def test_words_of_other_texts_are_read_but_not_generated(bert):
  folder, pieces, table = bert
  actual = piece_vectors.prepare(
    TEXTS, folder, size=2, marks=MARKS, others=(*TEXTS, "the zebra"), scale=2.0
  )
  entries = word_tokenizer.entries(actual.tokenizer)
  assert entries[4:6] == ["the", "a"] and actual.statistics["output_size"] == 6
  assert entries[6:] == ["dog", "!", "'", ",", "cafe", "cat", "s", "zebra"]
  assert (actual.statistics["size"], actual.statistics["read_types"]) == (14, 8)
  np.testing.assert_allclose(
    actual.table[-1], 2 * table[pieces.encode(["zebra"]).ids].mean(0), rtol=1e-6, atol=1e-7
  )


def test_a_run_remembers_its_words_and_a_train_vocabulary_asks_for_train_alone(bert, tmp_path):
  asked = []

  def texts(*splits):
    asked.append(splits)
    return iter(TEXTS)

  section = {**SECTION, "pretrained": bert[0]}
  opened = lambda **settings: open_encoder.open_encoder(
    {**section, **settings}, texts=texts, workdir=tmp_path / "run", root=""
  )
  first = opened()
  assert asked == [("train",)] and first.model_fields == {"marks": (2, 3), "output_size": 13}
  assert (first.module.vocab_size, first.module.hidden_size) == (13, 16)
  again = opened(pretrained="gone")
  assert len(asked) == 1 and again.provenance["words"] == first.provenance["words"]
  np.testing.assert_array_equal(again.params["embeddings/word"], first.params["embeddings/word"])
  assert static.load(tmp_path / "run" / open_encoder.ENCODER_FOLDER).statistics["marks"] == list(
    MARKS
  )
  open_encoder.open_encoder({**section, "vocabulary": "data"}, texts=texts, workdir="", root="")
  assert sorted(asked[1:]) == [(), ("train",)]
  with pytest.raises(InputError, match="encoder.vocabulary = 'file': use one of data, train"):
    open_encoder.open_encoder({**section, "vocabulary": "file"}, texts=texts, workdir="", root="")


def test_a_tokeniser_without_a_normaliser_is_read_and_one_without_words_refused(tmp_path):
  folder = tiny_encoders.folder("bert", tmp_path / "bert")
  content = json.loads(load_tokenizer(str(folder)).backend.to_str())
  file = folder / "tokenizer.json"
  file.write_text(json.dumps({**content, "normalizer": None}))
  actual = piece_vectors.prepare(("a cat sat A",), folder, size=0, marks=MARKS)
  assert word_tokenizer.entries(actual.tokenizer)[4:] == ["A", "a", "cat", "sat"]
  file.write_text(json.dumps({**content, "pre_tokenizer": None}))
  with pytest.raises(InputError, match="no BERT's"):
    piece_vectors.prepare(("a cat",), folder, size=0, marks=MARKS)


def test_bad_input_is_named(bert, tmp_path):
  with pytest.raises(InputError, match=r"encoder.marks = .*<s>.*give two entries"):
    piece_vectors.prepare(TEXTS, bert[0], size=0, marks=("<s>", "[SEP]"))
  with pytest.raises(InputError, match="give two entries"):
    piece_vectors.prepare(TEXTS, bert[0], size=0, marks=())
  roberta = tiny_encoders.folder("roberta", tmp_path / "roberta")
  with pytest.raises(InputError, match="no BERT's"):
    piece_vectors.prepare(TEXTS, roberta, size=0, marks=MARKS)
