"""M²S-Net over random words: no influence of padding, grids, sizes; its step is PyTorch's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
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
LOSS = M2SNetLoss(weight=5e-4)


@functools.cache
def model(row, small=True):
  fields = trecqa_m2snet.get_config(row).model.to_dict() | {"dropout": 0.0}
  del fields["name"]
  if small:
    fields |= {**SMALL, "filters": tuple(f // 8 for f in fields["filters"])}
  return M2SNet(StaticEncoder(WORDS, 6 if small else WIDTH, 0.0), **fields)


@functools.cache
def batch(step=0, lengths=None, n=8, examples=12):
  """A micro-batch `[shard, …]` of questions of two candidates each, their features, random tokens.

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
  counts = [int(rng.integers(1, 16 if q else 18)) for q in asked]
  if lengths:
    counts = [lengths[0] if q else lengths[1] for q in asked]
  offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
  ids = rng.integers(2, WORDS, offsets[-1]).astype(np.int32)
  units = table_of(ids, offsets, 0 * ids)
  entry = word_overlap.WordOverlap()
  values = entry.columns(entry.fit(questions), questions, Tables(units, table, None))
  how = {"sampler": "paper", "examples": examples, "packed": False, "shards": 1}
  inputs = {entry.name: Column(entry.level, values)}
  b = batcher_of(units, table, max(int(units.lengths.max()), 24), **how, inputs=inputs)
  plan = b.plan(b.sampler.blocks(), 0, 0)
  return jax.tree.map(lambda x: jnp.asarray(x[0]), b.batch(plan, step))


def variables(net, example_batch):
  """Random values for everything, so that no term vanishes."""
  shapes = jax.eval_shape(lambda: net.init(jax.random.key(0), example_batch, train=False))
  rng = np.random.default_rng(0)

  def value(path, leaf):
    name = path[-1].key
    spread = {"kernel": leaf.size // leaf.shape[-1], "U": 40}.get(name, 4)
    actual = rng.normal(size=leaf.shape) / np.sqrt(spread)
    return jnp.asarray(np.abs(actual) + 0.5 if name in ("var", "scale") else actual, jnp.float32)

  return jax.tree_util.tree_map_with_path(value, shapes)


@functools.partial(jax.jit, static_argnums=0, static_argnames="train")
def outcome(net, values, example_batch, *, train):
  """Logits, loss with penalty, gradient of the parameters, new statistics."""

  def total(params):
    output, new = net.apply(
      {**values, "params": params}, example_batch, train=train, mutable=["batch_stats"]
    )
    term = LOSS(output, example_batch, jnp.float32(0))["bce"]
    loss = jnp.sum(term.values * term.weights) / jnp.sum(term.weights)
    return loss + sum(LOSS.penalty(params).values()), (output, new)

  (loss, (output, new)), gradient = jax.value_and_grad(total, has_aux=True)(values["params"])
  return {
    "logits": output.logits,
    "scores": output.scores,
    "loss": loss,
    "gradient": gradient,
    "statistics": new["batch_stats"],
  }


@pytest.mark.parametrize(
  "row", ["shallow", "4", *(pytest.param(r, marks=pytest.mark.slow) for r in ("euc", "cos", "2"))]
)
def test_words_under_the_mask_reach_nothing(row):
  net = model(row)
  example_batch = batch(step=1)  # 16 pairs: the second batch holds 4
  tokens, units = example_batch.tokens, example_batch.units
  assert 0 < example_batch.examples.mask.sum() < 12
  anchors = {
    int(m)
    for m, e in zip(example_batch.examples.members[0, :, 0], example_batch.examples.mask[0])
    if e
  }
  real = np.zeros(tokens.ids.shape[1:], bool)
  cut = 0
  for u in np.flatnonzero(np.asarray(units.length[0])):
    size = net.question_length if u in anchors else net.candidate_length
    begin, length = int(units.start[0, u]), int(units.length[0, u])
    real[int(units.row[0, u]), begin : begin + min(length, size)] = True
    cut += max(length - size, 0)
  assert cut > 0
  noise = np.random.default_rng(5).integers(2, WORDS, tokens.ids.shape)
  other = example_batch.replace(
    tokens=tokens.replace(ids=jnp.where(real[None], tokens.ids, noise)),
    examples=example_batch.examples.replace(
      members=jnp.where(
        example_batch.examples.mask[..., None] > 0, example_batch.examples.members, 3
      )
    ),
  )
  values = variables(net, example_batch)
  for train in (True, False):
    one, two = (outcome(net, values, x, train=train) for x in (example_batch, other))
    keep = np.asarray(example_batch.examples.mask) > 0
    for name in ("logits", "scores"):
      one[name], two[name] = one[name][keep], two[name][keep]
    for path, a in jax.tree_util.tree_leaves_with_path(one):
      b = functools.reduce(lambda tree, key: tree[key.key], path, two)
      np.testing.assert_array_equal(a, b, jax.tree_util.keystr(path))
  changed = example_batch.replace(
    tokens=tokens.replace(ids=jnp.where(real[None], noise, tokens.ids))
  )
  assert np.abs(outcome(net, values, changed, train=True)["loss"] - one["loss"]) > 1e-4


@pytest.mark.parametrize("row", ["euc", "2"])
def test_the_grids_are_those_of_the_examples(row):
  """Each example's own tokens, in the order of the examples, 0 beyond them and of spare slots."""
  net = model(row)
  example_batch = batch(step=1)
  values = variables(net, example_batch)
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
      else:
        grid = {name: np.asarray(v, np.float64)[k] for name, v in values["params"]["grid"].items()}
        expected = x @ grid["U"] @ y.T + grid["B"][: len(x), : len(y)]
      np.testing.assert_allclose(actual[0, e, k, : len(x), : len(y)], expected, atol=1e-5)
      assert np.count_nonzero(actual[0, e, k]) == expected.size


def test_paper_sizes():
  """Parameters of each row beside the word vectors, counted by hand."""
  example_batch = batch(lengths=(33, 60), n=3, examples=6)
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
