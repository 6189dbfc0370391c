"""Ranking losses against loops in numpy, and their gradients against finite differences."""

import itertools
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from as2jax.models import ranking_losses as losses

# Two shards of six examples: question numbers, labels (−1 unjudged), mask; one question per shard has
# no positive, one has two, one a graded label.
QUESTION = np.array([[4, 4, 4, 7, 7, -1], [2, 2, 2, 2, 9, 9]])
LABELS = np.array([[0, 1, 1, 0, 0, 1], [0, 1, -1, 0, 1, 0]])
MASK = np.array([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]], np.float32)
TEACHER = np.random.default_rng(3).normal(size=(2, 6)).astype(np.float32)
SCORES = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)


def batch(labels=LABELS, shards=2):
  lay = lambda x: jnp.asarray(x).reshape(shards, -1)
  examples = types.SimpleNamespace(
    mask=lay(MASK), labels=lay(labels)[..., None], question=lay(QUESTION)
  )
  return types.SimpleNamespace(examples=examples, inputs={"teacher_scores": lay(TEACHER)})


def value(loss, scores=SCORES, **settings):
  output = types.SimpleNamespace(scores=jnp.asarray(scores))
  [term] = loss(output, batch(**settings), 0.0).values()
  assert term.reduction == "mean"
  return jnp.sum(term.values * term.weights) / jnp.sum(term.weights)


def questions(labels=LABELS, scores=SCORES):
  """(scores, labels) of the judged candidates of each question."""
  for shard in range(2):
    for question in dict.fromkeys(QUESTION[shard][MASK[shard] > 0].tolist()):
      at = (QUESTION[shard] == question) & (MASK[shard] > 0) & (labels[shard] >= 0)
      yield scores[shard][at].astype(float), labels[shard][at]


def test_list_softmax_by_hand():
  values = [
    -math.log(math.exp(3 * s[i]) / (math.exp(3 * s[i]) + np.exp(3 * s[y == 0]).sum()))
    for s, y in questions()
    for i in np.flatnonzero(y > 0)
  ]
  assert len(values) == 4
  np.testing.assert_allclose(value(losses.ListSoftmax(3.0)), np.mean(values), rtol=1e-5)


GRADED = np.where(LABELS == 1, np.arange(6) % 3 + 1, LABELS)


@pytest.mark.parametrize("labels", [LABELS, GRADED])
def test_ranknet_by_hand(labels):
  means = []
  for s, y in questions(labels):
    pairs = [(i, j) for i, j in itertools.permutations(range(len(s)), 2) if y[i] > y[j]]
    means += [np.mean([math.log1p(math.exp(s[j] - s[i])) for i, j in pairs])] if pairs else []
  np.testing.assert_allclose(value(losses.RankNet(1.0), labels=labels), np.mean(means), rtol=1e-5)


def test_distillation_by_hand():
  softmax = lambda x: np.exp(x) / np.exp(x).sum()
  values = []
  every = np.maximum(LABELS, 0)  # candidates without a label count, too
  for (s, _), (t, _) in zip(questions(every), questions(every, scores=TEACHER)):
    p, q = softmax(t / 0.5), softmax(2 * s)
    values.append((p * np.log(p / q)).sum())
  np.testing.assert_allclose(value(losses.Distillation(2.0, 0.5)), np.mean(values), rtol=1e-5)
  same = types.SimpleNamespace(scores=jnp.asarray(TEACHER))
  [term] = losses.Distillation(1.0, 1.0)(same, batch(), 0.0).values()
  np.testing.assert_allclose(term.values * term.weights, 0, atol=1e-6)


OF_SCORES = [losses.ListSoftmax(2.0), losses.RankNet(1.0), losses.Distillation(2.0, 0.5)]
kinds = pytest.mark.parametrize("loss", OF_SCORES, ids=repr)


@kinds
def test_the_two_shards_are_one_batch(loss):
  """Every question lies in one shard."""
  one = value(loss, SCORES.reshape(1, -1), shards=1)
  np.testing.assert_allclose(value(loss), one, rtol=1e-6)


@kinds
def test_gradients_are_those_of_finite_differences(loss):
  """The sum's slope along random directions; masked and unjudged scores have none."""
  gradient = np.asarray(jax.grad(lambda s: value(loss, s))(jnp.asarray(SCORES)))
  unread = (MASK == 0) | ((LABELS < 0) & (not loss.reads_unlabelled))
  assert np.isfinite(gradient).all() and (gradient[unread] == 0).all()
  rng = np.random.default_rng(1)
  for _ in range(3):
    d = rng.normal(size=SCORES.shape).astype(np.float32)
    slope = (value(loss, SCORES + 1e-2 * d) - value(loss, SCORES - 1e-2 * d)) / 2e-2
    np.testing.assert_allclose((gradient * d).sum(), slope, rtol=2e-2, atol=1e-3)


# Units of two shards; text 5 lies in both, text 8 is a question, text 3 answers it and question 1.
IDS = np.array([[1, 5, 3, 6, -1], [8, 3, 5, 2, 9]])
MEMBERS = np.array(
  [
    [[0, 1], [0, 2], [0, 3], [0, 0], [0, 0], [0, 0]],
    [[0, 1], [0, 3], [0, 2], [4, 3], [0, 0], [0, 0]],
  ]
)
PAIR_LABELS = np.array([[0, 1, 1, -1, -1, -1], [1, 0, 0, 1, -1, -1]])
PAIR_MASK = np.array([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0]], np.float32)


def in_batch(loss, units):
  examples = types.SimpleNamespace(
    members=jnp.asarray(MEMBERS),
    labels=jnp.asarray(PAIR_LABELS)[..., None],
    mask=jnp.asarray(PAIR_MASK),
  )
  fields = types.SimpleNamespace(
    examples=examples, units=types.SimpleNamespace(id=jnp.asarray(IDS))
  )
  return loss(types.SimpleNamespace(units=jnp.asarray(units)), fields, 0.0)


def vectors():
  """Equal texts have equal vectors, as without dropout."""
  of = np.random.default_rng(2).normal(size=(10, 4)).astype(np.float32)
  return of[IDS] * (IDS >= 0)[..., None], of


def similarity(kind, u, v):
  if kind == "euclidean":
    return -np.linalg.norm(u - v)
  return u @ v / (np.linalg.norm(u) * np.linalg.norm(v) if kind == "cosine" else 1)


@pytest.mark.parametrize("kind", losses.SIMILARITIES)
def test_in_batch_softmax_by_hand(kind):
  units, of = vectors()
  triples = [
    (IDS[s][q], IDS[s][c], label)
    for s in range(2)
    for (q, c), label, mask in zip(MEMBERS[s], PAIR_LABELS[s], PAIR_MASK[s])
    if mask
  ]
  term = in_batch(losses.InBatchSoftmax(2.0, kind), units)["in_batch_softmax"]
  values, pool = [], {candidate for _, candidate, _ in triples}
  for asked, answer, label in triples:
    if label == 1:
      right = similarity(kind, of[asked], of[answer])
      rest = pool - {c for q, c, label in triples if q == asked and label == 1}
      total = math.exp(2 * right)
      total += sum(math.exp(2 * similarity(kind, of[asked], of[c])) for c in rest)
      values.append(-math.log(math.exp(2 * right) / total))
  assert float(term.weights.sum()) == len(values) > 0
  np.testing.assert_allclose(np.asarray(term.values * term.weights).sum(), sum(values), rtol=1e-5)


@pytest.mark.parametrize("kind", losses.SIMILARITIES)
def test_in_batch_gradients_are_those_of_finite_differences(kind):
  units, _ = vectors()
  loss = lambda u: sum(
    (t.values * t.weights).sum() for t in in_batch(losses.InBatchSoftmax(2.0, kind), u).values()
  )
  gradient = np.asarray(jax.grad(loss)(jnp.asarray(units)))
  assert np.isfinite(jax.grad(loss)(jnp.zeros((2, 5, 4)))).all()
  rng = np.random.default_rng(1)
  for _ in range(3):
    d = rng.normal(size=units.shape).astype(np.float32)
    slope = (loss(units + 1e-2 * d) - loss(units - 1e-2 * d)) / 2e-2
    np.testing.assert_allclose((gradient * d).sum(), slope, rtol=2e-2, atol=1e-2)
