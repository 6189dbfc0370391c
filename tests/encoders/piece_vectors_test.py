"""Whole words with vectors from a BERT's input table, and the run's memory of them."""

import json

import numpy as np
import pytest
import tiny
import tiny_encoders

from as2jax.data.text import word_tokenizer
from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.encoders import open_encoder, piece_vectors, static, transformer_folder
from as2jax.runtime.errors import InputError

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
