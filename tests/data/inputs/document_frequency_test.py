"""Frequencies and filter of words: by hand, of real tables, in batches, at ranking time."""

import tiny

from as2jax.data.inputs import word_overlap as document_frequency
from as2jax.data.inputs.protocol import Tables
from as2jax.data.inputs.word_overlap import DocumentFrequency, StopWords
from as2jax.data.record import Candidate, Question
from as2jax.data.text.tokenise import build_units
from as2jax.data.text.tokenizer import load_tokenizer

TRAIN = (
  Question("Q1", "Who is the cat?", (Candidate("a", "The cat sat on the mat.", 1), Candidate("b", "It sat.", 0))),
  Question("Q2", "Who is the cat?", (Candidate("a", "The cat sat on the mat.", 0),)),
  Question("Q3", "Cat, cat, cat!", ()),
)  # fmt: skip


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
  tables = Tables(table, None, None)
  frequency, stop = (
    DocumentFrequency().columns(FITTED, (), tables),
    StopWords().columns(None, (), tables),
  )
  return [
    (table.forms[f], int(r), float(n), not s)
    for f, r, n, s in zip(table.word_form, table.word_role, frequency, stop)
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
