"""The batch layout, without any model: every layout, packed or not, sharded, tiled, accumulated; samplers; prefetching."""

import dataclasses
import threading

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data.batches import examples as layouts
from as2jax.data.batches.batcher import Column, fit_batcher, prefetch
from as2jax.data.batches.samplers import Limits, Sampler, pack
from as2jax.data.record import Candidate, Question
from as2jax.data.text.tokenise import UnitTable
from as2jax.runtime.errors import InputError

MAKE = {
  "triplets": lambda q: layouts.triplets(q, tile=4),
  "pairs": layouts.pairs,
  "single": lambda q: layouts.single(q, template="context"),
  "joint": lambda q: layouts.joint(
    q, size=3, first_stage_ranking=[np.arange(len(x.candidates))[::-1] for x in q]
  ),
  "sentences": layouts.sentences,
}


def questions(n=30, seed=0, candidates=(2, 9)):
  rng = np.random.default_rng(seed)
  generated = []
  for i in range(n):
    count = int(rng.integers(*candidates))
    labels = rng.random(count) < 0.3
    sentences = tuple(
      Candidate(
        f"D{i}-{j}",
        f"sentence {i} {j}" if rng.random() < 0.9 else "shared sentence",
        int(labels[j]),
        previous="before" if j else "",
        next="after",
      )
      for j in range(count)
    )
    generated.append(Question(f"Q{i}", f"question {i}", sentences))
  return tuple(generated)


def unit_table(units):
  """A table of random tokens: token t of unit u is `100·u + t + 1`, so that each can be traced."""
  lengths = np.random.default_rng(0).integers(2, 21, len(units))
  number = np.repeat(np.arange(len(units)), lengths)
  within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
  words = lengths // 2  # two tokens a word; an odd last token belongs to none
  word_at = np.arange(words.sum()) - np.repeat(np.cumsum(words) - words, words)
  return dataclasses.replace(
    UnitTable.of_lengths(lengths, (100 * number + within + 1).astype(np.int32)),
    type=(within % 2).astype(np.int8),
    role=(within % 4).astype(np.int8),
    word_start=(2 * word_at).astype(np.int32),
    word_length=np.full(len(word_at), 2, np.int32),
    word_role=(word_at % 4).astype(np.int8),
    word_form=np.arange(len(word_at), dtype=np.int32),
    word_offsets=np.concatenate([[0], np.cumsum(words)]).astype(np.int64),
    forms=("word",) * len(word_at),
  )


SETTINGS = dict(sampler="paper", examples_per_batch=8, rows=0, row_lengths=(32,), packed=True)
SETTINGS |= dict(shards=1, accumulate=1, buckets=2)


def batcher(layout="triplets", *, data=None, **changes):
  units, table = MAKE[layout](questions() if data is None else data)
  settings = dict(SETTINGS)
  if changes.get("sampler") in ("grouped", "shared", "ordered", "by_length"):
    settings.update(rows=16, examples_per_batch=48)
  return fit_batcher(unit_table(units), table, **{**settings, **changes})


def batches(b):
  plan = b.plan(b.sampler.blocks(), 0, 0)
  return plan, [b.batch(plan, i) for i in range(len(plan))]


def content(batch, shard):
  """(ids, type, role, position) of each used unit slot of a shard, by following the spans."""
  tokens, units = batch.tokens, batch.units
  slots = {}
  for u in np.flatnonzero(units.length[shard]):
    span = (
      shard,
      units.row[shard, u],
      slice(units.start[shard, u], units.start[shard, u] + units.length[shard, u]),
    )
    segment = np.unique(tokens.segment[span])
    assert len(segment) == 1 and segment[0] > 0
    row = tokens.segment[shard, units.row[shard, u]]
    assert (row == segment[0]).sum() == units.length[shard, u]  # nobody else has this number
    slots[u] = [
      np.asarray(x[span]) for x in (tokens.ids, tokens.type, tokens.role, tokens.position)
    ]
  return slots


SAMPLERS = ["paper", "grouped", "shared", "ordered"]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("layout", list(MAKE))
@pytest.mark.parametrize("shards,accumulate", [(1, 1), (4, 1), (2, 2)])
def test_every_example_once_with_its_own_tokens(layout, sampler, shards, accumulate):
  b = batcher(layout, sampler=sampler, shards=shards, accumulate=accumulate)
  plan, example_batch = batches(b)
  seen = []
  for step, batch in zip(plan.steps, example_batch):
    assert jax.tree.leaves(batch)[0].shape[:2] == (accumulate, shards)
    for m, micro in enumerate(step):
      part = jax.tree.map(lambda x: x[m], batch)
      for s, shard in enumerate(micro):
        if shard is None:
          assert not part.examples.mask[s].any() and not part.tokens.segment[s].any()
          assert (part.units.id[s] == -1).all() and not part.units.length[s].any()
          continue
        check_shard(b, part, s, shard)
        seen += shard.examples.tolist()
  assert sorted(seen) == list(range(len(b.examples)))
  sizes = np.diff(plan.seen)
  assert plan.seen[-1] == len(b.examples)
  if sampler == "paper":  # the papers' number of examples, save where they do not fit
    assert sizes.max() == 8 * accumulate


def check_shard(b, part, s, shard):
  units = content(part, s)
  table = b.units
  for u, (ids, kind, role, position) in units.items():
    unit = table.unit(int(part.units.id[s, u]))
    for got, want in ((ids, unit.ids), (kind, unit.type), (role, unit.role)):
      np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(position, np.arange(len(ids)))
  assert len({int(part.units.id[s, u]) for u in units}) == len(units)  # encoded once
  assert (part.tokens.segment[s] > 0).sum() == sum(len(x[0]) for x in units.values())
  examples = part.examples
  assert examples.mask[s].sum() == len(shard.examples)
  for e, number in enumerate(shard.examples):
    want = b.examples.members[number]
    np.testing.assert_array_equal(part.units.id[s][examples.members[s, e]], want)
    np.testing.assert_array_equal(examples.labels[s, e], b.examples.labels[number])
    assert examples.question[s, e] == b.examples.question[number]
    assert examples.answer[s, e] == b.examples.answer[number]
  rest = slice(len(shard.examples), None)
  assert not examples.mask[s, rest].any() and not examples.members[s, rest].any()
  assert (examples.labels[s, rest] == -1).all() and (examples.question[s, rest] == -1).all()


def test_a_plan_is_a_function_of_seed_and_epoch():
  b = batcher("pairs", sampler="grouped")
  blocks = b.sampler.blocks()
  order = lambda seed, epoch: [
    step[0][0].examples.tolist() for step in b.plan(blocks, seed, epoch).steps
  ]
  assert order(3, 1) == order(3, 1)
  assert order(3, 1) != order(3, 2) and order(3, 1) != order(4, 1)


def test_grouped_keeps_questions_whole_and_rows_full():
  b = batcher("triplets", sampler="grouped", data=questions(200))
  plan, example_batch = batches(b)
  where: dict[int, set[int]] = {}
  for i, batch in enumerate(example_batch):
    for q in np.unique(batch.examples.question[batch.examples.mask > 0]):
      where.setdefault(int(q), set()).add(i)
  assert all(len(steps) == 1 for steps in where.values())
  # 1 + P + N encodings a question, not 3·P·N.
  distinct = {int(u) for u in b.examples.members.ravel()}
  assert sum(int((x.units.length > 0).sum()) for x in example_batch) < 1.1 * len(distinct)
  assert b.padding(plan) < 0.12
  empty = [1 - x.units.length.sum() / np.prod(x.tokens.ids.shape) for x in example_batch]
  np.testing.assert_allclose(b.padding_by_step(plan), empty, rtol=1e-12)


def test_a_huge_question_is_tiled():
  labels = [1] * 40 + [0] * 60
  huge = Question(
    "Q", "huge", tuple(Candidate(f"c{i}", f"text {i}", label) for i, label in enumerate(labels))
  )
  data = questions(6) + (huge,)
  units, table = layouts.triplets(data, tile=8)
  b = fit_batcher(
    unit_table(units), table, **SETTINGS | dict(sampler="grouped", rows=16, examples_per_batch=64)
  )
  plan, example_batch = batches(b)
  seen = np.concatenate([s.examples for step in plan.steps for m in step for s in m])
  assert sorted(seen.tolist()) == list(range(len(table))) and len(table) >= 2400
  encoded = sum(len(s.units) for step in plan.steps for m in step for s in m)
  assert encoded < 0.5 * 3 * len(table)  # tiles share their sentences


def test_unpacked_units_have_their_own_rows_and_short_rows():
  b = batcher(
    "sentences", sampler="by_length", packed=False, row_lengths=(8, 16, 32), examples_per_batch=16
  )
  plan, example_batch = batches(b)
  assert set(plan.row_length) == {8, 16, 32}
  for batch in example_batch:
    assert batch.tokens.segment.max() == 1 and not batch.units.start.any()
    used = batch.units.length[0, 0] > 0
    assert len(set(batch.units.row[0, 0][used])) == used.sum()


@pytest.mark.parametrize("packed", [True, False])
def test_columns_lie_beside_what_they_describe(packed):
  units, table = layouts.pairs(questions())
  source = unit_table(units)
  drawn = lambda n, *tail: np.random.default_rng(n).normal(size=(n, *tail))
  vocabulary = int(source.ids.max()) + 1
  columns = {
    "vectors": Column("token", drawn(len(source.ids), 3).astype(np.float16)),
    "letters": Column("vocabulary", np.arange(2 * vocabulary, dtype=np.int32).reshape(-1, 2)),
    "weight": Column("word", drawn(len(source.word_form)).astype(np.float32)),
    "page": Column("unit", np.arange(1, len(source) + 1, dtype=np.int32)),
    "overlap": Column("example", drawn(len(table), 2).astype(np.float32)),
  }
  changes = dict(sampler="ordered", rows=8, packed=packed, shards=2, inputs=columns)
  b = fit_batcher(source, table, **SETTINGS | changes)
  plan, example_batch = batches(b)
  seen = dict.fromkeys(columns, 0)
  for step, batch in zip(plan.steps, example_batch):
    assert set(batch.inputs) == set(columns)
    assert all(batch.inputs[name].dtype == its.values.dtype for name, its in columns.items())
    for s, shard in enumerate(step[0]):
      shard_units = [] if shard is None else shard.units
      wanted = {name: [] for name in columns}
      tokens, at = batch.tokens, batch.units
      for slot, u in enumerate(shard_units):
        own = slice(*source.offsets[u : u + 2])
        row, start, length = (int(x[0, s, slot]) for x in (at.row, at.start, at.length))
        for name in ("vectors", "letters"):
          there = tokens.inputs[name][0, s, row, start : start + length]
          rows = own if name == "vectors" else source.ids[own]
          np.testing.assert_array_equal(there, columns[name].values[rows])
          seen[name] += length
        spans = slice(*source.word_offsets[u : u + 2])
        wanted["weight"].append(columns["weight"].values[spans])
        mine = batch.words.length[0, s].astype(bool) & (batch.words.unit[0, s] == slot)
        for name in ("start", "length", "role", "form"):
          there = getattr(batch.words, name)[0, s][mine]
          np.testing.assert_array_equal(there, getattr(source, f"word_{name}")[spans])
        wanted["page"].append(columns["page"].values[u : u + 1])
      if shard is not None:
        wanted["overlap"] = [columns["overlap"].values[shard.examples]]
      for name, part in (("weight", batch.words), ("page", at), ("overlap", batch.examples)):
        rows = np.concatenate(wanted[name]) if wanted[name] else columns[name].values[:0]
        np.testing.assert_array_equal(part.inputs[name][0, s, : len(rows)], rows)
        assert not part.inputs[name][0, s, len(rows) :].any()
        seen[name] += len(rows)
      for name in ("vectors", "letters"):
        assert not tokens.inputs[name][0, s][tokens.segment[0, s] == 0].any()
  assert all(seen.values()) and seen["overlap"] == len(table)
  with pytest.raises(InputError, match="no input 'zebra' .it has: letters, overlap, page, vectors"):
    example_batch[0].inputs["zebra"]


def test_a_refusal_names_the_key_of_the_rows():
  with pytest.raises(InputError, match="^batch.predict_rows = 30 does not divide into batch.sh"):
    batcher("pairs", sampler="ordered", rows=30, shards=4, rows_key="batch.predict_rows")
  b = batcher(
    "pairs", sampler="by_length", rows=2, shards=2, packed=False, rows_key="batch.predict_rows"
  )
  with pytest.raises(InputError, match="^batch.predict_rows: .* raise batch.predict_rows, or"):
    b.plan(b.sampler.blocks(), 0, 0)


def _threads():
  return [t for t in threading.enumerate() if t.name.startswith("prefetch")]


def test_prefetched_items_come_in_order():
  assert list(prefetch(lambda i: i * i, range(20))) == [i * i for i in range(20)]
  assert not _threads()


def test_an_error_comes_where_its_item_would():
  def make(i):
    if i == 3:
      raise KeyError("three")
    return i

  got = []
  with pytest.raises(KeyError, match="three"):
    for item in prefetch(make, range(9)):
      got.append(item)
  assert got == [0, 1, 2] and not _threads()


def test_an_early_stop_ends_the_thread():
  items = prefetch(lambda i: i, range(10**6))
  assert next(items) == 0
  items.close()
  assert not _threads()


def test_examples_that_no_shard_can_hold_are_named():
  """Two texts of 100 tokens, which belong together, and one row of 128."""
  table = layouts.ExampleTable(
    np.asarray([[0, 1]], np.int32), np.zeros((1, 1)), *[np.zeros(1, np.int32)] * 3
  )
  sampler = Sampler("paper", table, np.asarray([100, 100]), Limits(2, 2, 1, 128))
  with pytest.raises(InputError, match=r"1 examples .* 2 texts of 200 tokens.* raise batch\.rows"):
    list(sampler.epoch(sampler.blocks(), 0, 3))


def paragraphs(questions: int, sentences: int, each: int) -> layouts.ExampleTable:
  """`questions` of `sentences // each` paragraphs in turn, each with all sentences of its paragraph."""
  members, question = [], []
  for q in range(questions):
    first = q % (sentences // each) * each
    members += [(sentences + q, first + i) for i in range(each)]
    question += [q] * each
  members = np.asarray(members, np.int32)
  n = len(members)
  return layouts.ExampleTable(
    members, np.zeros((n, 1)), np.asarray(question), np.arange(n), np.arange(n)
  )


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
