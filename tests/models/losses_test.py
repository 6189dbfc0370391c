"""Losses by hand and in loops of numpy; gradients of ranking losses against finite differences."""

import functools
import itertools
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from as2jax.models import losses, ranking_losses


def reduced(term):
  """The value of a term, as the step reduces it."""
  total, weights = jnp.sum(term.values * term.weights), jnp.sum(term.weights)
  return total if term.reduction == "sum" else total / weights


# Squared distances (positive, negative) and their class at margin 5.
TRIPLETS = [
  ((1.0, 7.0), "easy"),
  ((1.0, 6.0), "easy"),  # 1 − 6 + 5 = 0: easy ⇔ zero loss
  ((1.0, 5.0), "semihard"),
  ((2.0, 2.0), "hard"),  # a tie is hard
  ((3.0, 1.0), "hard"),
  ((0.0, 4.999), "semihard"),
]
LOSSES = {"easy": 0.0, "semihard": 1.0 + 0.001, "hard": 5.0 + 7.0}


def triplet_terms(selection, mask=(1,) * 6, reduction="sum"):
  squared = jnp.asarray([[t for t, _ in TRIPLETS]])
  output = types.SimpleNamespace(squared_distances=squared)
  examples = types.SimpleNamespace(mask=jnp.asarray([mask], jnp.float32))
  batch = types.SimpleNamespace(examples=examples)
  return losses.TripletLoss(5.0, selection, reduction)(output, batch, 0.0)


@pytest.mark.parametrize(
  "selection,kinds",
  [
    ("all", ("easy", "semihard", "hard")),
    ("hard", ("hard",)),
    ("semihard", ("semihard",)),
    ("violating", ("semihard", "hard")),
  ],
)
def test_triplet_loss_by_hand(selection, kinds):
  terms = triplet_terms(selection)
  np.testing.assert_allclose(reduced(terms["triplet"]), sum(LOSSES[k] for k in kinds), rtol=1e-5)


def test_every_triplet_is_of_one_class_and_counted():
  terms = triplet_terms("all", mask=(1, 1, 1, 1, 0, 1))
  counts = {name: reduced(terms[f"triplets_{name}"]) for name in ("easy", "semihard", "hard")}
  assert counts == {"easy": 2, "semihard": 2, "hard": 1}
  assert all(terms[f"triplets_{name}"].scale == 0 for name in counts)
  classes = losses.triplet_classes(*jnp.asarray([t for t, _ in TRIPLETS]).T, 5.0)
  for i, (_, kind) in enumerate(TRIPLETS):
    assert [name for name in classes if classes[name][i]] == [kind]


def test_masked_triplets_weigh_nothing_and_the_mean_divides_by_the_chosen():
  assert reduced(triplet_terms("all", mask=(0, 0, 0, 1, 0, 0))["triplet"]) == 5.0
  mean = reduced(triplet_terms("hard", reduction="mean")["triplet"])
  assert mean == pytest.approx((5 + 7) / 2)


def test_binary_cross_entropy_by_hand():
  output = types.SimpleNamespace(logits=jnp.asarray([[2.0, -1.0, 100.0, 3.0]]))
  labels = jnp.asarray([[[1], [0], [0], [-1]]])
  examples = types.SimpleNamespace(mask=jnp.ones((1, 4)), labels=labels)
  batch = types.SimpleNamespace(examples=examples)
  term = losses.BinaryCrossEntropy()(output, batch, 0.0)["bce"]
  sigmoid = lambda x: 1 / (1 + np.exp(-x))
  want = (-np.log(sigmoid(2.0)) - np.log(1 - sigmoid(-1.0)) + 100.0) / 3  # unjudged is left out
  assert reduced(term) == pytest.approx(want, rel=1e-6)


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
  return reduced(term)


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
  np.testing.assert_allclose(value(ranking_losses.ListSoftmax(3.0)), np.mean(values), rtol=1e-5)


GRADED = np.where(LABELS == 1, np.arange(6) % 3 + 1, LABELS)


@pytest.mark.parametrize("labels", [LABELS, GRADED])
def test_ranknet_by_hand(labels):
  means = []
  for s, y in questions(labels):
    pairs = [(i, j) for i, j in itertools.permutations(range(len(s)), 2) if y[i] > y[j]]
    means += [np.mean([math.log1p(math.exp(s[j] - s[i])) for i, j in pairs])] if pairs else []
  np.testing.assert_allclose(
    value(ranking_losses.RankNet(1.0), labels=labels), np.mean(means), rtol=1e-5
  )


def test_distillation_by_hand():
  softmax = lambda x: np.exp(x) / np.exp(x).sum()
  values = []
  every = np.maximum(LABELS, 0)  # candidates without a label count, too
  for (s, _), (t, _) in zip(questions(every), questions(every, scores=TEACHER)):
    p, q = softmax(t / 0.5), softmax(2 * s)
    values.append((p * np.log(p / q)).sum())
  np.testing.assert_allclose(
    value(ranking_losses.Distillation(2.0, 0.5)), np.mean(values), rtol=1e-5
  )
  same = types.SimpleNamespace(scores=jnp.asarray(TEACHER))
  [term] = ranking_losses.Distillation(1.0, 1.0)(same, batch(), 0.0).values()
  np.testing.assert_allclose(term.values * term.weights, 0, atol=1e-6)


OF_SCORES = [
  ranking_losses.ListSoftmax(2.0),
  ranking_losses.RankNet(1.0),
  ranking_losses.Distillation(2.0, 0.5),
]
kinds = pytest.mark.parametrize("loss", OF_SCORES, ids=repr)


@kinds
def test_the_two_shards_are_one_batch(loss):
  """Every question lies in one shard."""
  one = value(loss, SCORES.reshape(1, -1), shards=1)
  np.testing.assert_allclose(value(loss), one, rtol=1e-6)


def assert_slopes(loss, at, gradient, atol):
  """The gradient is the loss's slope along random directions."""
  rng = np.random.default_rng(1)
  for _ in range(3):
    d = rng.normal(size=at.shape).astype(np.float32)
    slope = (loss(at + 1e-2 * d) - loss(at - 1e-2 * d)) / 2e-2
    np.testing.assert_allclose((gradient * d).sum(), slope, rtol=2e-2, atol=atol)


@kinds
def test_gradients_are_those_of_finite_differences(loss):
  """Masked and unjudged scores have none."""
  gradient = np.asarray(jax.grad(lambda s: value(loss, s))(jnp.asarray(SCORES)))
  unread = (MASK == 0) | ((LABELS < 0) & (not loss.reads_unlabelled))
  assert np.isfinite(gradient).all() and (gradient[unread] == 0).all()
  assert_slopes(functools.partial(value, loss), SCORES, gradient, 1e-3)


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


@pytest.mark.parametrize("kind", ranking_losses.SIMILARITIES)
def test_in_batch_softmax_by_hand(kind):
  units, of = vectors()
  triples = [
    (IDS[s][q], IDS[s][c], label)
    for s in range(2)
    for (q, c), label, mask in zip(MEMBERS[s], PAIR_LABELS[s], PAIR_MASK[s])
    if mask
  ]
  term = in_batch(ranking_losses.InBatchSoftmax(2.0, kind), units)["in_batch_softmax"]
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


@pytest.mark.parametrize("kind", ranking_losses.SIMILARITIES)
def test_in_batch_gradients_are_those_of_finite_differences(kind):
  units, _ = vectors()
  loss = lambda u: sum(
    (t.values * t.weights).sum()
    for t in in_batch(ranking_losses.InBatchSoftmax(2.0, kind), u).values()
  )
  gradient = np.asarray(jax.grad(loss)(jnp.asarray(units)))
  assert np.isfinite(jax.grad(loss)(jnp.zeros((2, 5, 4)))).all()
  assert_slopes(loss, units, gradient, 1e-2)
