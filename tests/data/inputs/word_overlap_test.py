"""Overlap features: numbers by hand, and those of the baselines."""

import dataclasses
import math

import numpy as np
import pytest

from as2jax.data.batches import examples as layouts
from as2jax.data.inputs import word_overlap
from as2jax.data.inputs.protocol import Tables
from as2jax.data.record import Candidate, Question

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
