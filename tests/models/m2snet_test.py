"""M²S-Net over random words: grids, sizes; its step, with padding, is PyTorch's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import step_batches
import tiny

from as2jax.data.batches import examples as layouts
from as2jax.data.batches.batcher import Column
from as2jax.data.inputs import word_overlap
from as2jax.data.inputs.protocol import Tables
from as2jax.encoders.static import StaticEncoder
from as2jax.models.m2snet import M2SNet
from configs import trecqa_m2snet

ROWS = ("euc", "cos", "shallow", "2", "4")
WORDS, WIDTH = 40, 50
SMALL = {"question_length": 12, "candidate_length": 14, "filter_size": 3, "hidden_size": 8}


@functools.cache
def model(row, small=True):
  fields = trecqa_m2snet.get_config(row).model.to_dict() | {"dropout": 0.0}
  del fields["name"]
  if small:
    fields |= {**SMALL, "filters": tuple(f // 8 for f in fields["filters"])}
  return M2SNet(StaticEncoder(WORDS, 6 if small else WIDTH, 0.0), **fields)


@functools.cache
def batch(step=0, lengths=None, n=4, examples=12):
  """A micro-batch `[shard, …]` of questions of four candidates each, their features, random tokens.

  `lengths` (question, candidate) for all of them, random ones to beyond the small grid's if None.
  """
  rng = np.random.default_rng(0)
  questions = step_batches.questions(n)
  texts, table = layouts.pairs(questions)
  asked = np.isin(np.arange(len(texts)), table.members[:, 0])
  counts = [int(rng.integers(1, 16 if q else 18)) for q in asked]
  if lengths:
    counts = [lengths[0] if q else lengths[1] for q in asked]
  offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
  ids = rng.integers(2, WORDS, offsets[-1]).astype(np.int32)
  units = step_batches.table_of(ids, offsets, 0 * ids)
  entry = word_overlap.WordOverlap()
  values = entry.columns(entry.fit(questions), questions, Tables(units, table, None))
  how = {"sampler": "paper", "examples": examples, "packed": False, "shards": 1}
  inputs = {entry.name: Column(entry.level, values)}
  b = step_batches.batcher_of(units, table, max(int(units.lengths.max()), 24), **how, inputs=inputs)
  plan = b.plan(b.sampler.blocks(), 0, 0)
  return jax.tree.map(lambda x: jnp.asarray(x[0]), b.batch(plan, step))


@pytest.mark.parametrize("row", ["euc", "cos", "2"])
def test_the_grids_are_those_of_the_examples(row):
  """Each example's own tokens, in the order of the examples, 0 beyond them and of spare slots."""
  net = model(row)
  example_batch = batch(step=1)
  values = tiny.random_variables(net, example_batch)
  actual = np.asarray(net.similarity_grids(values, example_batch))
  size = net.question_length, net.candidate_length
  assert actual.shape == (1, 12, net.modes, *size)
  table = np.asarray(values["params"]["encoder"]["embeddings"]["word"], np.float64)
  tokens, units, mask = (
    example_batch.tokens,
    example_batch.units,
    np.asarray(example_batch.examples.mask[0]),
  )
  for e in range(12):
    if not mask[e]:
      assert not actual[0, e].any()
      continue
    sides = []
    for unit, most in zip(example_batch.examples.members[0, e].tolist(), size):
      begin, length = int(units.start[0, unit]), min(int(units.length[0, unit]), most)
      sides.append(table[tokens.ids[0, units.row[0, unit], begin : begin + length]])
    x, y = sides
    for k in range(net.modes):
      if row == "euc":
        expected = 1 / (1 + np.linalg.norm(x[:, None] - y[None], axis=-1))
      elif row == "cos":
        unit = lambda v: v / np.linalg.norm(v, axis=-1, keepdims=True)
        expected = unit(x) @ unit(y).T
      else:
        grid = {name: np.asarray(v, np.float64)[k] for name, v in values["params"]["grid"].items()}
        expected = x @ grid["U"] @ y.T + grid["B"][: len(x), : len(y)]
      np.testing.assert_allclose(actual[0, e, k, : len(x), : len(y)], expected, atol=1e-5)
      assert np.count_nonzero(actual[0, e, k]) == expected.size


def test_paper_sizes():
  """Parameters of each row beside the word vectors, counted by hand."""
  example_batch = batch(lengths=(33, 60), n=2, examples=8)
  maps = 64 * 5 * 12  # 33×60 → 29×56 → 14×28 → 10×24 → 5×12
  deep = 25 * 32 * 64 + 2 * 32 + 2 * 64 + 32 * (maps + 1) + 34 + 1
  shallow = 2 * 32 + 32 * (32 * 14 * 28 + 1) + 34 + 1
  metric = lambda k: k * (50 * 50 + 33 * 60)
  wanted = {
    "euc": deep + 25 * 32,
    "cos": deep + 25 * 32,
    "2": deep + 50 * 32 + metric(2),
    "4": deep + 100 * 32 + metric(4),
    "shallow": shallow + 100 * 32 + metric(4),
  }
  for row in ROWS:
    shapes = jax.eval_shape(
      lambda row=row: model(row, small=False).init(jax.random.key(0), example_batch, train=False)
    )["params"]
    assert sum(x.size for x in jax.tree.leaves(shapes)) == wanted[row] + WORDS * WIDTH, row
