"""A small M²S-Net and batches of random words: what its tests share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from step_batches import batcher_of, table_of

from as2jax.data.batches import examples as layouts
from as2jax.data.batches.batcher import Column
from as2jax.data.inputs import word_overlap
from as2jax.data.inputs.protocol import Tables
from as2jax.data.record import Candidate, Question
from as2jax.encoders.static import StaticEncoder
from as2jax.models.m2snet import M2SNet, M2SNetLoss
from configs import trecqa_m2snet

ROWS = ("euc", "cos", "shallow", "2", "4")
WORDS, WIDTH = 40, 50
SMALL = {"question_length": 12, "candidate_length": 14, "filter_size": 3, "hidden_size": 8}


@functools.cache
def model(row="2", small=True, dropout=0.0, **changes):
  config = trecqa_m2snet.get_config(row)
  fields = {k: v for k, v in config.model.to_dict().items() if k != "name"}
  fields |= {**SMALL, "filters": tuple(f // 8 for f in fields["filters"])} if small else {}
  width = 6 if small else WIDTH
  return M2SNet(StaticEncoder(WORDS, width, 0.0), **{**fields, "dropout": dropout, **changes})


LOSS = M2SNetLoss(weight=5e-4)


@functools.cache
def content(lengths=None, n=8):
  """Questions of two candidates each, their pairs with features, and random tokens.

  `lengths` (question, candidate) for all of them, random ones to beyond the small grid's if None.
  """
  rng = np.random.default_rng(0)
  questions = tuple(
    Question(
      f"Q{i}",
      f"question {i}",
      tuple(Candidate(f"D{i}-{j}", f"answer {i} {j}", int(j == i % 2)) for j in range(2)),
    )
    for i in range(n)
  )
  texts, table = layouts.pairs(questions)
  asked = [text.startswith("question") for (text,) in texts]
  counts = (
    [lengths[0] if q else lengths[1] for q in asked]
    if lengths
    else [int(rng.integers(1, 16 if q else 18)) for q in asked]
  )
  offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
  ids = rng.integers(2, WORDS, offsets[-1]).astype(np.int32)
  units = table_of(ids, offsets, 0 * ids)
  entry = word_overlap.WordOverlap()
  values = entry.columns(entry.fit(questions), questions, Tables(units, table, None))
  return units, table, {entry.name: Column(entry.level, values)}


@functools.cache
def batcher(lengths=None, n=8, *, packed=False, examples=8, shards=1, sampler="paper"):
  units, table, inputs = content(lengths, n)
  length = max(int(units.lengths.max()), 24)
  how = {"sampler": sampler, "examples": examples, "packed": packed, "shards": shards}
  return batcher_of(units, table, length, **how, inputs=inputs)


def batch(seed=0, step=0, **settings):
  """A micro-batch `[shard, …]`."""
  b = batcher(**settings)
  plan = b.plan(b.sampler.blocks(), seed, 0)
  return jax.tree.map(lambda x: jnp.asarray(x[0]), b.batch(plan, step))


def variables(net, example_batch, seed=0):
  """Random values for everything, so that no term vanishes."""
  shapes = jax.eval_shape(lambda: net.init(jax.random.key(0), example_batch, train=False))
  rng = np.random.default_rng(seed)

  def value(path, leaf):
    name = path[-1].key
    spread = {"kernel": leaf.size // leaf.shape[-1], "U": 40}.get(name, 4)
    actual = rng.normal(size=leaf.shape) / np.sqrt(spread)
    return jnp.asarray(np.abs(actual) + 0.5 if name in ("var", "scale") else actual, jnp.float32)

  return jax.tree_util.tree_map_with_path(value, shapes)
