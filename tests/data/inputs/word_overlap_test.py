"""Overlap features, frequencies and stop words by hand; what inputs fit is kept by the run."""

import dataclasses
import json
import math

import numpy as np
import pytest
import tiny

from as2jax.data.batches import examples as layouts
from as2jax.data.inputs import protocol as fitted
from as2jax.data.inputs import word_overlap
from as2jax.data.inputs.protocol import Tables, declared
from as2jax.data.inputs.word_overlap import DocumentFrequency, StopWords, WordOverlap
from as2jax.data.record import Candidate, Question, fingerprint
from as2jax.data.text.tokenise import build_units
from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.runtime.errors import InputError

TRAIN = (
  Question("Q1", "Who ate the fish ?", (Candidate("a", "The cat ate the fish .", 1), Candidate("b", "A dog ran .", 0))),
  Question("Q2", "Who ran ?", (Candidate("a", "A dog ran .", 1), Candidate("b", "the end", 0), Candidate("c", "?!", 0))),
)  # fmt: skip


OVERLAP = word_overlap.WordOverlap()


def features(question, candidate, fitted, **form):
  [pair] = word_overlap.WordOverlap(**form).features([(question, candidate)], fitted)
  return pair.tolist()


def test_numbers_by_hand():
  """4 distinct sentences; `the` in 2, `ate`, `fish` in 1 each, `zebra` in none."""
  rarity = OVERLAP.fit(TRAIN)
  frequency = rarity["frequency"]
  assert rarity["sentences"] == 4 and frequency["the"] == 2 and frequency["fish"] == 1
  # question of 4 words, candidate of 5: ate, the, fish are shared
  plain, weighted = features("Who ate the fish?", "The cat ate the fish.", rarity)
  assert plain == pytest.approx(3 / 9)
  assert weighted == pytest.approx((2 * math.log(4) + math.log(2)) / 9)
  assert features("zebra", "zebra zebra", rarity) == pytest.approx((1 / 3, math.log(4) / 3))
  assert features("?", "!", rarity) == [0, 0]
  assert features("the cat", "a dog", rarity) == [0, 0]


def test_counts_and_shares_by_hand():
  """`the` is in 2 of 4 sentences, every other word of the question counts as in one."""
  rarity = OVERLAP.fit(TRAIN)
  the, rare = math.log(2), math.log(4)
  pair = ("The zebra ate the fish?", "the fish, THE fish!")
  assert features(*pair, rarity, form="counts") == pytest.approx([2, the + rare])
  assert features(*pair, rarity, form="shares") == pytest.approx(
    [2 / 4, (the + rare) / (the + 3 * rare)]
  )
  for form in word_overlap.FORMS:  # neither a word nor a weight to divide by
    assert features("?", "the", rarity, form=form) == [0, 0]
  assert features("the", "the", OVERLAP.fit(()), form="shares") == [1, 0]


@pytest.mark.parametrize("form", word_overlap.FORMS)
def test_standardised_over_the_judged_training_pairs(form):
  entry = word_overlap.WordOverlap(form, standardise=True)
  unjudged = Candidate("d", "Who ate the fish ?", -1)
  train = (dataclasses.replace(TRAIN[0], candidates=(*TRAIN[0].candidates, unjudged)), TRAIN[1])
  fitted = entry.fit(train)
  values = entry.columns(fitted, train, Tables(None, layouts.pairs(train)[1], None))
  assert values.shape == (5, 2) and values.dtype == np.float32
  np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-6)
  np.testing.assert_allclose(values.std(axis=0), 1, atol=1e-6)
  plain = word_overlap.WordOverlap(form).features([("the cat", "the dog")], fitted)
  np.testing.assert_allclose(
    entry.features([("the cat", "the dog")], fitted),
    (plain - fitted["mean"]) / fitted["deviation"],
    rtol=1e-6,
  )


CATS = (
  Question("Q1", "Who is the cat?", (Candidate("a", "The cat sat on the mat.", 1), Candidate("b", "It sat.", 0))),
  Question("Q2", "Who is the cat?", (Candidate("a", "The cat sat on the mat.", 0),)),
  Question("Q3", "Cat, cat, cat!", ()),
)  # fmt: skip


FITTED = DocumentFrequency().fit(CATS)


def test_texts_are_counted_once_each():
  questions, sentences = FITTED["questions"], FITTED["sentences"]
  assert questions["cat"] == 3 and questions["who"] == 2  # of three, two of one text
  assert sentences["sat"] == 2 and sentences["the"] == 1  # of two distinct ones
  assert "mat" not in questions and questions["?"] == 2
  assert word_overlap.count(["a b", "a a", ""], str.split) == {"a": 2, "b": 1}


def weighed(unit, max_length=64):
  how = {"template": "context", "max_length": max_length, "words": True}
  table = build_units([unit], load_tokenizer(tiny.encoder_folder()), **how)
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


ENTRIES = (WordOverlap(), DocumentFrequency())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_it_is_fitted_once(entry, tmp_path):
  first = fitted.recall(entry, tmp_path, lambda: TRAIN)
  content = json.loads((tmp_path / "inputs" / f"{entry.name}.json").read_text())
  assert content["source"] == fingerprint(TRAIN) and content["values"] == first
  again = fitted.recall(entry, tmp_path, lambda: pytest.fail("the data are not asked for"))
  assert again == first == entry.fit(TRAIN) == fitted.recall(entry, "", lambda: TRAIN)
  with pytest.raises(InputError, match=f"train.*inputs/{entry.name}.json.*train first"):
    fitted.recall(entry, tmp_path / "empty", lambda: None)
  fitted.forget(tmp_path)
  assert not (tmp_path / "inputs").exists()


@pytest.mark.parametrize(
  "change",
  [
    lambda c: {**c, "values": {**c["values"], "sentences": 5}},
    lambda c: {**c, "version": 0},
    lambda c: [],
  ],
)
def test_a_changed_file_is_refused(change, tmp_path):
  entry = WordOverlap()
  fitted.recall(entry, tmp_path, lambda: TRAIN)
  path = tmp_path / "inputs" / f"{entry.name}.json"
  path.write_text(json.dumps(change(json.loads(path.read_text()))))
  with pytest.raises(InputError, match=f"{entry.name}.json.*train again"):
    fitted.recall(entry, tmp_path, lambda: TRAIN)
  for text in ('{"version": 1', "[" * 100_000):
    path.write_text(text)
    with pytest.raises(InputError, match=f"{entry.name}.json: not valid JSON.*train again"):
      fitted.recall(entry, tmp_path, lambda: TRAIN)


def test_names_of_inputs_are_their_own():
  class Model:
    inputs = (WordOverlap(), WordOverlap())

  with pytest.raises(InputError, match="give each a name of its own"):
    declared(Model())
  assert declared(object()) == ()
