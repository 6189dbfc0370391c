"""Overlap features: numbers by hand, what a run remembers, and their way into batches."""

import math

import numpy as np
import pytest

from as2jax.data.batches import examples as layouts
from as2jax.data.batches.batcher import fit_batcher
from as2jax.data.datasets import dataset
from as2jax.data.inputs import word_overlap
from as2jax.data.record import Candidate, Question, fingerprint
from as2jax.data.text import words
from as2jax.data.text.token_table import UnitTable
from as2jax.models import lexical
from as2jax.runtime.errors import InputError

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


def test_numbers_by_hand():
  """4 distinct sentences; `the` in 2, `ate`, `fish` in 1 each, `zebra` in none."""
  rarity = word_overlap.fit(TRAIN)
  assert rarity.sentences == 4 and rarity.frequency["the"] == 2 and rarity.frequency["fish"] == 1
  assert rarity.source == fingerprint(TRAIN)
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
  assert word_overlap.features("the cat", "the dog", word_overlap.fit(())) == (0.25, 0.0)


def test_they_rank_as_the_baselines_do_where_lengths_are_equal():
  """The numerators are the scores of `word_overlap` and `idf_overlap`."""
  data = dataset.load("sample")
  questions = data.splits["test"][:20]
  table = word_overlap.with_features(
    questions, layouts.pairs(questions)[1], word_overlap.fit(data.splits["train"])
  )
  lengths = [
    len(words.plain_words(q.text)) + len(words.plain_words(c.text))
    for q in questions
    for c in q.candidates
  ]
  scorers = lexical.word_overlap(), lexical.idf_overlap(data.splits["train"])
  for column, scorer in enumerate(scorers):
    np.testing.assert_allclose(
      table.features[:, column] * lengths, np.concatenate(scorer(questions)), rtol=1e-4, atol=1e-5
    )
  assert table.features.dtype == np.float32 and np.ptp(table.features, axis=0).min() > 0


def test_unjudged_candidates_are_left_out_as_the_layout_says():
  questions = (Question("Q", "the cat", (Candidate("a", "no", -1), Candidate("b", "the cat", 1))),)
  _, table = layouts.pairs(questions)
  found = word_overlap.with_features(questions, table, word_overlap.fit(TRAIN)).features
  assert found.shape == (1, 2) and found[0, 0] == 0.5


def test_a_run_remembers_its_training_split(tmp_path):
  first = word_overlap.remembered(tmp_path, lambda: TRAIN)
  assert (tmp_path / "encoder" / "overlap.json").exists()
  again = word_overlap.remembered(tmp_path, lambda: pytest.fail("the data are not asked for"))
  assert again == first
  assert word_overlap.remembered("", lambda: TRAIN) == first
  with pytest.raises(InputError, match="train first"):
    word_overlap.remembered(tmp_path / "empty", lambda: None)


def units(texts):
  offsets = np.arange(0, 2 * len(texts) + 1, 2)
  empty, none = np.empty(0, np.int32), np.zeros(len(offsets), np.int64)
  ids = np.arange(1, offsets[-1] + 1, dtype=np.int32)
  return UnitTable(
    ids=ids,
    type=(0 * ids).astype(np.int8),
    role=(0 * ids).astype(np.int8),
    offsets=offsets,
    word_start=empty,
    word_length=empty,
    word_role=empty.astype(np.int8),
    word_form=empty,
    word_offsets=none,
    forms=(),
    truncated_units=0,
    lost_by_role=(0, 0, 0, 0),
    blank_units=0,
  )


@pytest.mark.parametrize("shards", [1, 2])
def test_batches_carry_them_with_their_examples(shards):
  texts, table = layouts.pairs(TRAIN)
  made = word_overlap.with_features(TRAIN, table, word_overlap.fit(TRAIN))
  settings = dict(
    sampler="paper",
    examples_per_batch=4,
    rows=0,
    row_lengths=(4,),
    packed=False,
    shards=shards,
    accumulate=1,
    buckets=1,
  )
  batcher = fit_batcher(units(texts), made, **settings)
  plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
  seen = 0
  for i, (step,) in enumerate(plan.steps):
    examples = batcher.batch(plan, i).examples
    assert examples.features.shape == (1, shards, 4 // shards, 2)
    assert examples.features.dtype == np.float32
    for s, shard in enumerate(step):
      numbers = [] if shard is None else shard.examples
      np.testing.assert_array_equal(examples.features[0, s, : len(numbers)], made.features[numbers])
      assert not examples.features[0, s, len(numbers) :].any()
      seen += len(numbers)
  assert seen == len(made) == 5
  plain = fit_batcher(units(texts), table, **settings)
  assert plain.batch(plain.plan(plain.sampler.blocks(), 0, 0), 0).examples.features is None
