"""Losses: numbers by hand."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from as2jax.models import losses


def batch(labels=None, mask=None):
  examples = types.SimpleNamespace(
    mask=jnp.asarray(mask, jnp.float32),
    labels=None if labels is None else jnp.asarray(labels)[..., None],
  )
  return types.SimpleNamespace(examples=examples)


def value(term):
  weights = np.asarray(term.weights)
  total = float(np.sum(np.asarray(term.values) * weights))
  return total if term.reduction == "sum" else total / weights.sum()


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
  return losses.TripletLoss(5.0, selection, reduction)(output, batch(mask=[mask]), 0.0)


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
  np.testing.assert_allclose(value(terms["triplet"]), sum(LOSSES[k] for k in kinds), rtol=1e-5)


def test_every_triplet_is_of_one_class_and_counted():
  terms = triplet_terms("all", mask=(1, 1, 1, 1, 0, 1))
  counts = {name: value(terms[f"triplets_{name}"]) for name in ("easy", "semihard", "hard")}
  assert counts == {"easy": 2, "semihard": 2, "hard": 1}
  assert all(terms[f"triplets_{name}"].scale == 0 for name in counts)
  classes = losses.triplet_classes(*jnp.asarray([t for t, _ in TRIPLETS]).T, 5.0)
  for i, (_, kind) in enumerate(TRIPLETS):
    assert [name for name in classes if classes[name][i]] == [kind]


def test_masked_triplets_weigh_nothing_and_the_mean_divides_by_the_chosen():
  assert value(triplet_terms("all", mask=(0, 0, 0, 1, 0, 0))["triplet"]) == 5.0
  mean = value(triplet_terms("hard", reduction="mean")["triplet"])
  assert mean == pytest.approx((5 + 7) / 2)


def test_binary_cross_entropy_by_hand():
  logits, labels = jnp.asarray([[2.0, -1.0, 100.0, 3.0]]), jnp.asarray([[1, 0, 0, -1]])
  term = losses.BinaryCrossEntropy()(
    types.SimpleNamespace(logits=logits), batch(labels, [[1, 1, 1, 1]]), 0.0
  )["bce"]
  sigmoid = lambda x: 1 / (1 + np.exp(-x))
  want = (-np.log(sigmoid(2.0)) - np.log(1 - sigmoid(-1.0)) + 100.0) / 3  # unjudged is left out
  assert value(term) == pytest.approx(want, rel=1e-6)
