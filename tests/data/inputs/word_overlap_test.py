"""Overlap features: numbers by hand, and those of the baselines."""

import math

import numpy as np
import pytest

from as2jax.data.batches import examples as layouts
from as2jax.data.datasets import dataset
from as2jax.data.inputs import word_overlap
from as2jax.data.inputs.protocol import Tables
from as2jax.data.record import Candidate, Question
from as2jax.data.text import words
from as2jax.models import lexical

TRAIN = (
  Question(
    "Q1",
    "Who ate the fish ?",
    (Candidate("a", "The cat ate the fish .", 1), Candidate("b", "A dog ran .", 0)),
  ),
  Question(
    "Q2",
    "Who ran ?",
    (Candidate("a", "A dog ran .", 1), Candidate("b", "the end", 0), Candidate("c", "?!", 0)),
  ),
)


OVERLAP = word_overlap.WordOverlap()


def columns(questions, table, fitted):
  return OVERLAP.columns(fitted, questions, Tables(None, table, None))


def test_numbers_by_hand():
  """4 distinct sentences; `the` in 2, `ate`, `fish` in 1 each, `zebra` in none."""
  rarity = OVERLAP.fit(TRAIN)
  frequency = rarity["frequency"]
  assert rarity["sentences"] == 4 and frequency["the"] == 2 and frequency["fish"] == 1
  # question of 4 words, candidate of 5: ate, the, fish are shared
  plain, weighted = word_overlap.features("Who ate the fish?", "The cat ate the fish.", rarity)
  assert plain == pytest.approx(3 / 9)
  assert weighted == pytest.approx((2 * math.log(4) + math.log(2)) / 9)
  assert word_overlap.features("zebra", "zebra zebra", rarity) == pytest.approx(
    (1 / 3, math.log(4) / 3)
  )
  assert word_overlap.features("?", "!", rarity) == (0, 0)
  assert word_overlap.features("the cat", "a dog", rarity) == (0, 0)


def test_without_training_sentences_every_weight_is_0():
  assert word_overlap.features("the cat", "the dog", OVERLAP.fit(())) == (0.25, 0.0)


def test_they_rank_as_the_baselines_do_where_lengths_are_equal():
  """The numerators are the scores of `word_overlap` and `idf_overlap`."""
  data = dataset.load("sample")
  questions = data.splits["test"][:20]
  found = columns(questions, layouts.pairs(questions)[1], OVERLAP.fit(data.splits["train"]))
  lengths = [
    len(words.plain_words(q.text)) + len(words.plain_words(c.text))
    for q in questions
    for c in q.candidates
  ]
  scorers = (
    ranker().fit(data.splits["train"]).score for ranker in (lexical.WordOverlap, lexical.IDFOverlap)
  )
  for column, scorer in enumerate(scorers):
    np.testing.assert_allclose(
      found[:, column] * lengths, np.concatenate(scorer(questions)), rtol=1e-4, atol=1e-5
    )
  assert found.dtype == np.float32 and np.ptp(found, axis=0).min() > 0


def test_unjudged_candidates_are_left_out_as_the_layout_says():
  questions = (Question("Q", "the cat", (Candidate("a", "no", -1), Candidate("b", "the cat", 1))),)
  _, table = layouts.pairs(questions)
  found = columns(questions, table, OVERLAP.fit(TRAIN))
  assert found.shape == (1, 2) and found[0, 0] == 0.5
