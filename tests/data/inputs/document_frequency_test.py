"""Frequencies and filter of words: by hand, of real tables, in batches, at ranking time."""

import os
import pathlib

import numpy as np
import pytest
import tiny

from as2jax.data import dataset
from as2jax.data.batches.batcher import Column
from as2jax.data.inputs import document_frequency, stop_words
from as2jax.data.inputs.document_frequency import DocumentFrequency
from as2jax.data.inputs.protocol import Tables
from as2jax.data.record import Candidate, Question
from as2jax.data.text.tokenise import build_units, load_tokenizer

TRAIN = (
  Question(
    "Q1",
    "Who is the cat?",
    (Candidate("a", "The cat sat on the mat.", 1), Candidate("b", "It sat.", 0)),
  ),
  Question("Q2", "Who is the cat?", (Candidate("a", "The cat sat on the mat.", 0),)),
  Question("Q3", "Cat, cat, cat!", ()),
)


FITTED = DocumentFrequency().fit(TRAIN)


def test_texts_are_counted_once_each():
  questions, sentences = FITTED["questions"], FITTED["sentences"]
  assert questions["cat"] == 3 and questions["who"] == 2  # of three, two of one text
  assert sentences["sat"] == 2 and sentences["the"] == 1  # of two distinct ones
  assert "mat" not in questions and questions["?"] == 2
  assert document_frequency.count(["a b", "a a", ""], str.split) == {"a": 2, "b": 1}


def weighed(unit, template="context", max_length=64):
  table = build_units(
    [unit],
    load_tokenizer(tiny.encoder_folder()),
    template=template,
    max_length=max_length,
    words=True,
  )
  frequency, keep = document_frequency.weigh(table, FITTED), stop_words.kept(table)
  return [
    (table.forms[f], int(r), float(n), bool(k))
    for f, r, n, k in zip(table.word_form, table.word_role, frequency, keep)
  ]


def test_frequency_and_keep_by_hand():
  actual = weighed(("Who is a cat?", "The zebra sat!", "It is.", ""))
  assert actual == [
    ("who", 0, 2, False),
    ("is", 0, 2, False),
    ("a", 0, 1, False),
    ("cat", 0, 3, True),
    ("?", 0, 2, False),
    ("the", 1, 1, False),
    ("zebra", 1, 1, True),
    ("sat", 1, 2, True),
    ("!", 1, 1, False),
    # nothing but stop words and a mark: all are kept
    ("it", 2, 1, True),
    ("is", 2, 1, True),
    (".", 2, 2, True),
  ]


def test_what_truncation_cut_off_is_not_there_to_be_kept():
  whole = weighed(("who is it", "it is the zebra", "", ""), max_length=40)
  assert [kept for form, role, _, kept in whole if role == 1] == [False, False, False, True]
  tokens = 5 + len("whoisit") + len("itisthe")  # more than there are, so that some are lost
  for length in range(9, tokens):
    cut = weighed(("who is it", "it is the zebra", "", ""), max_length=length)
    there = [(form, kept) for form, role, _, kept in cut if role == 1]
    assert any(kept for _, kept in there)
    if all(form != "zebra" for form, _ in there):
      assert all(kept for _, kept in there)


def test_a_table_without_words_or_units():
  tokenizer = load_tokenizer(tiny.encoder_folder())
  for units, words in (([], True), ([("a", "b")], False)):
    table = build_units(units, tokenizer, template="pair", max_length=9, words=words)
    frequency, keep = document_frequency.weigh(table, FITTED), stop_words.kept(table)
    assert frequency.shape == keep.shape == (0,)
    assert stop_words.most_words(table, keep) == dict.fromkeys(
      ("question", "sentence", "question_kept", "sentence_kept"), 0
    )
    assert not any(
      stop_words.words_beyond(table, keep, question_words=1, sentence_words=1).values()
    )


def test_the_most_words_of_a_text():
  table = build_units(
    [
      ("Who is a cat?", "The zebra sat!", "It is.", ""),
      ("zebra zebra", "of", "one two three four five", ""),
    ],
    load_tokenizer(tiny.encoder_folder()),
    template="context",
    max_length=64,
    words=True,
  )
  keep = stop_words.kept(table)
  assert stop_words.most_words(table, keep) == {
    "question": 5,
    "sentence": 5,
    "question_kept": 2,
    "sentence_kept": 5,
  }
  beyond = lambda keep, q, s: stop_words.words_beyond(
    table, keep, question_words=q, sentence_words=s
  )
  assert beyond(keep, 1, 3) == {  # one `zebra`; `four five`
    "questions": 1,
    "sentences": 1,
    "question_words": 1,
    "sentence_words": 2,
  }
  assert beyond(np.ones_like(keep), 3, 3) == {  # `cat ?`; `!`, `four five`
    "questions": 1,
    "sentences": 2,
    "question_words": 2,
    "sentence_words": 3,
  }
  assert not any(beyond(keep, 2, 5).values())
  for left_out, used in ((True, keep), (False, np.ones_like(keep))):
    entry = stop_words.StopWords(left_out, 1, 3)
    column = Column("word", entry.columns(None, (), Tables(table, None, None)))
    np.testing.assert_array_equal(column.values, 1.0 - keep)
    assert entry.statistics(column, table) == {"words_left_out": beyond(used, 1, 3)}


WIKIQA = pathlib.Path(os.environ.get("AS2JAX_DATA", "/nowhere")) / "wikiqa"


@pytest.mark.skipif(not WIKIQA.is_dir(), reason="WikiQA is not in $AS2JAX_DATA")
def test_real_questions_hold_their_words():
  train = dataset.load("wikiqa").splits["train"]
  actual = DocumentFrequency().fit(train)
  assert actual["questions"]["?"] == sum("?" in q.text for q in train)
  texts = {c.text for q in train for c in q.candidates}
  assert max(actual["sentences"].values()) <= len(texts)
  assert max(actual["questions"].values()) <= len(train)
