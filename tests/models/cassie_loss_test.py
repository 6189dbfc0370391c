"""CASSIE's loss by hand: mutual information, cross entropy, what is masked."""

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_cassie import batch, case

from as2jax.models.cassie import CassieLoss, CassieOutput, judged_pairs


def terms(labels, sentences, logits, pairs, **fields):
  """The loss of one example with the given numbers."""
  arrays = [jnp.asarray(x, jnp.float32)[None, None] for x in (logits, pairs)]
  there = jnp.asarray(sentences, bool)[None, None]
  cosines = jnp.asarray([[[0.25, 0.75]]])
  counts = there.astype(jnp.int32)
  both = jnp.stack([counts, 2 * counts], axis=-1)
  output = CassieOutput(arrays[0][..., 0], *arrays, there, there, cosines, 3 * counts, both)
  example_batch = batch([[case(0, (1,) * (len(labels) + 1), labels)]])
  loss = CassieLoss(**{"gamma": 0.3, "mi_self_pairs": True, **fields})
  return {
    k: (float((t.values * t.weights).sum()), t)
    for k, t in loss(output, example_batch, jnp.float32(0)).items()
  }


def test_mutual_information_by_hand():
  u = np.arange(9).reshape(3, 3) / 4 - 1
  log_u, log_not = -np.log1p(np.exp(-u)), -np.log1p(np.exp(u))
  # c and next are answers, previous is not: I+ is (1,1), (1,3), (3,1), (3,3); I− (1,2), (3,2).
  expected = -(log_u[0, 0] + log_u[0, 2] + log_u[2, 0] + log_u[2, 2]) - (
    log_not[0, 1] + log_not[2, 1]
  )
  actual = terms((1, 0, 1), (1, 1, 1), [0.5], u)
  assert actual["mutual_information"][0] == pytest.approx(expected, rel=1e-6)
  assert actual["mutual_information"][1].scale == 0.3 and actual["bce"][1].scale == 1.0
  assert actual["bce"][0] == pytest.approx(np.log1p(np.exp(-0.5)), rel=1e-6)
  assert (actual["answer_pairs"][0], actual["contrast_pairs"][0]) == (4, 2)
  without = terms((1, 0, 1), (1, 1, 1), [0.5], u, mi_self_pairs=False)
  assert without["mutual_information"][0] == pytest.approx(
    expected + log_u[0, 0] + log_u[2, 2], rel=1e-6
  )
  unknown = terms((1, -1, 0), (1, 1, 0), [0.5], u)  # next is not there, previous not judged
  assert unknown["mutual_information"][0] == pytest.approx(-log_u[0, 0], rel=1e-6)
  assert (unknown["unjudged_sentences"][0], unknown["masked_nodes"][0]) == (1, 1)
  assert terms((0, 0, 0), (1, 1, 1), [0.5], u)["mutual_information"][0] == 0
  assert terms((-1, 1, 0), (1, 1, 1), [0.5], u)["bce"][1].weights.sum() == 0


def test_what_is_watched_by_hand():
  actual = terms((1, 0, 1), (1, 1, 0), [0.5], np.zeros((3, 3)))
  value = {name: total / float(term.weights.sum()) for name, (total, term) in actual.items()}
  assert value["node_cosine_0"] == 0.25 and value["node_cosine_1"] == 0.75
  assert value["self_alignment"] == 0.5 and value["relevant_words"] == 3
  watched = ("node_cosine_0", "node_cosine_1", "self_alignment", "relevant_words")
  assert not any(actual[name][1].scale for name in watched)
  alone = terms((1, 0, 1), (1, 0, 0), [0.5], np.zeros((3, 3)))
  assert float(alone["node_cosine_1"][1].weights.sum()) == 0  # one node has no pair


def test_cross_entropy_is_summed_over_the_candidates_of_joint():
  logits = [0.5, -1.0, 2.0, 3.0]
  actual = terms((1, 0, 0, -1), (1, 1, 0, 1), logits, np.zeros((4, 4)))
  assert actual["bce"][0] == pytest.approx(
    np.log1p(np.exp(-0.5)) + np.log1p(np.exp(-1.0)), rel=1e-6
  )
  both, apart = judged_pairs(
    jnp.asarray([[[1, 0, 0, -1]]]), jnp.ones((1, 1, 4), bool), self_pairs=True
  )
  assert both[0, 0].nonzero()[0].tolist() == [0] and apart[0, 0].sum() == 2
