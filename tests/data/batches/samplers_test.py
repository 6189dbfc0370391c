"""Samplers: what no shard can hold, which questions meet; packing loses nothing and takes few rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data.batches.examples import ExampleTable
from as2jax.data.batches.samplers import Limits, Sampler, pack
from as2jax.runtime.errors import InputError


def test_examples_that_no_shard_can_hold_are_named():
  """Two texts of 100 tokens, which belong together, and one row of 128."""
  table = ExampleTable(
    np.asarray([[0, 1]], np.int32), np.zeros((1, 1)), *[np.zeros(1, np.int32)] * 3
  )
  sampler = Sampler("paper", table, np.asarray([100, 100]), Limits(2, 2, 1, 128))
  with pytest.raises(InputError, match=r"1 examples .* 2 texts of 200 tokens.* raise batch\.rows"):
    list(sampler.epoch(sampler.blocks(), 0, 3))


def paragraphs(questions: int, sentences: int, each: int) -> ExampleTable:
  """`questions` of `sentences // each` paragraphs in turn, each with all sentences of its paragraph."""
  members, question = [], []
  for q in range(questions):
    first = q % (sentences // each) * each
    members += [(sentences + q, first + i) for i in range(each)]
    question += [q] * each
  members = np.asarray(members, np.int32)
  n = len(members)
  return ExampleTable(members, np.zeros((n, 1)), np.asarray(question), np.arange(n), np.arange(n))


def encoded(name: str, epoch: int = 0) -> tuple[int, list]:
  """How many units an epoch encodes, and its questions in order."""
  table = paragraphs(questions=240, sentences=200, each=5)
  lengths = np.full(200 + 240, 16)
  sampler = Sampler(name, table, lengths, Limits(256, 64, 8, 128))
  epoch_shards = list(sampler.epoch(sampler.blocks(), 0, epoch))
  examples = np.concatenate([s.examples for s in epoch_shards])
  np.testing.assert_array_equal(np.sort(examples), np.arange(len(table)))
  for shard in epoch_shards:  # no question is cut
    assert (np.bincount(table.question[shard.examples], minlength=240) % 5 == 0).all()
  return sum(len(s.units) for s in epoch_shards), table.question[examples].tolist()


def test_questions_that_share_candidates_are_encoded_together():
  shared, order = encoded("shared")
  # Six questions a paragraph: 240 questions and 200 sentences, and what an edge of a shard cuts.
  assert 440 <= shared <= 1.25 * 440
  assert encoded("grouped")[0] > 2 * shared
  assert encoded("shared") == (shared, order)  # a pure function of seed and epoch
  assert encoded("shared", epoch=1)[1] != order


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(40, 64))
def test_units_lie_apart_within_rows(lengths, row_length):
  row, start, rows = pack(np.asarray(lengths, int), row_length)
  used = np.zeros((rows, row_length), int)
  for r, s, n in zip(row, start, lengths):
    assert s + n <= row_length
    used[r, s : s + n] += 1
  assert used.max(initial=0) <= 1 and used.sum() == sum(lengths)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=80))
def test_rows_stay_near_the_least(lengths):
  least = -(-sum(lengths) // 64)
  assert pack(np.asarray(lengths), 64)[2] <= 11 / 9 * max(least, sum(n > 32 for n in lengths)) + 1


@pytest.mark.parametrize("length", [0, 65])
def test_a_unit_outside_a_row_is_refused(length):
  with pytest.raises(ValueError, match=f"has {length} tokens"):
    pack(np.asarray([3, length]), 64)
