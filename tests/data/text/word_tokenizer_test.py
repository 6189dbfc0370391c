"""Words as the house splits them, behind the tokeniser contract."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_test import SENTENCES

from as2jax.data.text import word_tokenizer
from as2jax.data.text import words as house
from as2jax.data.text.tokenise import build_units
from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.runtime.errors import InputError

WORDS = ("ice", "Caves", "caves", "form", "don't", "<s>", "</s>")


def build(words=WORDS, lower=False, treebank=False, **settings):
  splitter = word_tokenizer.splitter(lower=lower, treebank=treebank)
  return word_tokenizer.build(words, splitter, **settings)


def spans(text):
  encoded = build().encode([text], spans=True)
  return list(zip(encoded.starts.tolist(), encoded.ends.tolist(), strict=True))


def expected(text):
  return [match.span() for match in house.word_pattern(house.marks(text)).finditer(text)]


def test_marks_stay_with_their_letters():
  for text in ("हिन्दी में", "cafe\u0301 naïve", "שָׁלוֹם", "❤\ufe0f ok"):
    actual = [form for form, *_ in house.words(text)]
    assert actual == ([*text.split()] if text[0] != "❤" else ["❤", "\ufe0f", "ok"])
    assert [text[start:end] for start, end in spans(text)] == actual


@given(st.text(alphabet="aZ'’ .-\u0301\u00bd_9\u2167\x1cß\u0130", max_size=20))
def test_any_text_splits_as_the_house_splits(text):
  assert spans(text) == expected(text)


def test_ids_and_case():
  cased = build()
  assert word_tokenizer.entries(cased) == ["[PAD]", "[UNK]", *WORDS]
  given = cased.tokens(cased.encode(["Ice caves don\u2019t Form [PAD]"]).ids)
  assert given == ["[UNK]", "caves", "don't", *["[UNK]"] * 4]
  lower = build(lower=True)
  assert lower.tokens(lower.encode(["ICE Caves"]).ids) == ["ice", "caves"]
  assert cased.fingerprint != lower.fingerprint


@pytest.mark.parametrize(
  ("text", "words"),
  [
    ("John's caves can't", ["John", "'s", "caves", "ca", "n't"]),
    ("they\u2019LL DON'T", ["they", "'LL", "DO", "N'T"]),
    ("John 's I 'd it", ["John", "'s", "I", "'d", "it"]),
    ("The U.S. paid $1,000.50, at 10:30.", ["The", "U.S.", "paid", "$", "1,000.50", ",", "at", "10:30", "."]),
    ("e.g. A. Word.b.c 3.x 2nd", ["e.g.", "A", ".", "Word", ".", "b", ".", "c", "3", ".", "x", "2nd"]),
    ("rock'n'roll 'sir' 's.", ["rock'n'roll", "'", "sir", "'", "'", "s", "."]),
  ],
)  # fmt: skip
def test_treebank(text, words):
  splitter = word_tokenizer.splitter(lower=False, treebank=True)
  assert list(word_tokenizer.split([text], splitter)) == [words]


def test_unknown_words_may_be_skipped():
  tokenizer = build(skip_unknown=True)
  encoded = tokenizer.encode(["the ice of caves", "of the", "", "form"], spans=True)
  assert tokenizer.tokens(encoded.ids) == ["ice", "caves", "[SKIP]", "form"]
  assert encoded.lengths.tolist() == [2, 1, 0, 1]
  assert encoded.starts.tolist() == [4, 11, 0, 0] and encoded.ends.tolist() == [7, 16, 2, 4]
  plain = tokenizer.encode(["the ice of caves", "of the", "", "form"])
  np.testing.assert_array_equal(plain.ids, encoded.ids)
  assert not len(plain.starts)


def test_markers_surround_each_text():
  tokenizer = build(markers=("<s>", "</s>"), skip_unknown=True)
  table = build_units(
    [("ice caves form",), ("of the",)], tokenizer, template="single", max_length=4
  )
  assert [tokenizer.tokens(table.unit(i).ids) for i in range(2)] == [
    ["<s>", "ice", "caves", "</s>"],
    ["<s>", "[SKIP]", "</s>"],
  ]


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("markers", [(), ("<s>", "</s>")])
def test_saved_and_loaded_it_is_the_same(tmp_path, skip, markers):
  tokenizer = build(lower=True, treebank=True, skip_unknown=skip, markers=markers)
  word_tokenizer.save(tokenizer, tmp_path)
  loaded = load_tokenizer(str(tmp_path))
  assert loaded.fingerprint == tokenizer.fingerprint
  assert loaded.special == tokenizer.special
  np.testing.assert_array_equal(loaded.encode(SENTENCES).ids, tokenizer.encode(SENTENCES).ids)


def test_what_cannot_be_is_named():
  with pytest.raises(InputError, match="word-level tokeniser puts no separator"):
    build_units([("ice", "caves")], build(), template="pair", max_length=9)
  with pytest.raises(InputError, match="give none, or one before and one after"):
    build(markers=("<s>",))
  with pytest.raises(InputError, match="'<end>' is no word of the vocabulary"):
    build(markers=("<s>", "<end>"))
