"""CASSIE: padding, packing, context, joint, gradients, ablations; its loss by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny_cassie import Lookup, apply, batch, case, gradient, model, quick, variables, xlnet

from as2jax.models.cassie import CassieLoss, CassieOutput, judged_pairs
from as2jax.models.crossencoder import LocalContextCrossEncoder

# Judged and unjudged context, a missing sentence, no question, no candidate.
CASES = (
  case(0),
  case(1, labels=(0, 1, 1)),
  case(2, (3, 4, 0, 2), (1, -1, 0)),
  case(3, (0, 3, 2, 2), (0, 1, 0)),
  case(4, (3, 0, 2, 2), (1, 1, 0)),
  case(5, (2, 2, 0, 0)),
)


# One shape for all that is not joint: its programs are compiled once.
SHAPE = {"length": 56, "least": (4, 6, 40)}


@functools.cache
def packed():
  with jax.ensure_compile_time_eval():  # whoever asks first may be traced
    return batch([[CASES[0], CASES[1]], [CASES[2], CASES[5]]], [[CASES[3], CASES[4]]], **SHAPE)


def alone():
  """The same examples, one a row."""
  return batch([[CASES[n]] for n in (0, 1, 2, 5)], [[CASES[n]] for n in (3, 4)], **SHAPE)


def test_a_padded_packed_batch_gives_the_numbers_of_single_examples():
  net = model()
  values = variables(net)
  one, many = apply(net, values, alone()), apply(net, values, packed())
  for field in ("scores", "node_logits", "pair_logits", "nodes", "sentences"):
    actual, expected = np.asarray(getattr(many, field)), np.asarray(getattr(one, field))
    for s, e in ((0, 4), (1, 2)):
      np.testing.assert_allclose(actual[s, :e], expected[s, :e], atol=2e-6, err_msg=field)
  assert np.ptp(np.asarray(one.scores)[0]) > 0.01
  (loss, slopes), (other, those) = (
    gradient(net, values, example_batch) for example_batch in (alone(), packed())
  )
  np.testing.assert_allclose(loss, other, atol=1e-6)
  for a, b in zip(jax.tree.leaves(slopes), jax.tree.leaves(those), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)


def finite(tree):
  return all(np.isfinite(x).all() for x in jax.tree.leaves(tree))


@pytest.mark.parametrize(
  "net", [model(), quick(transport_gradient="unrolled")], ids=["envelope", "unrolled"]
)
def test_empty_sentences_mask_nodes_and_leave_gradients_finite(net):
  values = variables(net)
  assert finite(gradient(net, values, packed()))
  nothing = batch([[case(0, (0, 0, 0, 0), (1, 1, 1))]], [[]], **SHAPE)
  assert finite(gradient(net, values, nothing))
  if net == model():
    output = apply(net, values, packed())
    assert np.int8(output.nodes[0, :4]).tolist() == [[1, 1, 1], [1, 1, 1], [1, 0, 1], [1, 0, 0]]
    assert np.int8(output.nodes[1, :2]).tolist() == [[0, 0, 0], [0, 1, 1]]
    assert not np.any(output.nodes[:, 4:]) and finite(output.scores)


def test_a_padding_node_is_part_of_the_graph():
  net, values, example_batch = quick(padding_node=True), variables(quick()), packed()
  plain, output = apply(quick(), values, example_batch), apply(net, values, example_batch)
  assert np.all(output.nodes[0, 2:4]) and not np.any(output.nodes[1, 0])
  assert output.nodes[1, 1].tolist() == [False, True, True]
  assert abs(float(output.scores[0, 2]) - float(plain.scores[0, 2])) > 1e-4
  np.testing.assert_allclose(output.scores[0, :2], plain.scores[0, :2], atol=1e-6)
  np.testing.assert_array_equal(output.sentences, plain.sentences)
  actual = apply(net, values, example_batch, method="align")
  np.testing.assert_allclose(np.sum(actual.edges[0, 2], axis=-1), 1, atol=1e-6)


@pytest.mark.parametrize(
  "net, rows, told_apart",
  [
    (model(segments="four"), 4, True),
    (model(segments="four", encoder=xlnet()), 4, True),
    (quick(segments="three"), 3, False),
    (quick(segments="none"), 0, False),
    (quick(segments="four", template="joint"), 2, False),
    (quick(segments="ranks", template="joint"), 17, True),
  ],
)
def test_segment_embeddings_enter_every_encoder(net, rows, told_apart):
  """A sentence in the role of another is another one only where both have embeddings."""
  values = variables(net)
  table = values["params"].get("segment_embeddings", {"embedding": np.zeros((0, 8))})["embedding"]
  assert table.shape == (rows, 8)
  example_batch = packed()
  role = jnp.where(example_batch.tokens.role == 3, 2, example_batch.tokens.role)  # next as previous
  moved = example_batch.replace(tokens=example_batch.tokens.replace(role=role))
  change = np.abs(apply(net, values, example_batch).scores - apply(net, values, moved).scores).max()
  assert change > 1e-5 if told_apart else change == 0


CHANGES = {"alignment": "mean", "marginals": "uniform", "stop_words": False, "graph_layers": 0}
CHANGES |= {"segments": "none", "epsilon": 0.5, "question_words": 2, "epsilon_relative": False}


@pytest.mark.parametrize("changes", [{name: value} for name, value in CHANGES.items()], ids=str)
def test_every_ablation_changes_the_scores(changes):
  base = variables(quick())["params"]
  net = quick(**changes)
  own = jax.eval_shape(lambda: net.init(jax.random.key(0), packed(), train=False))["params"]
  values = {"params": {k: base[k] for k in own}}  # the very same weights
  change = apply(net, values, packed()).scores - apply(quick(), {"params": base}, packed()).scores
  assert np.abs(change).max() > 1e-6


@pytest.mark.parametrize("k", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_joint_scores_every_candidate(k):
  net = quick(template="joint")
  assert net.layout == "joint" and model().layout == "single"
  counts = (2, 2, 0) + (2,) * (k - 2)
  labels = (1, -1) + (0,) * (k - 2)
  example_batch = batch(
    [[case(0, counts, labels)], [case(1, (2,) * (k + 1), (0, 1) + (0,) * (k - 2))]], spare=1
  )
  values = variables(net, k)
  assert values["params"]["segment_embeddings"]["embedding"].shape[0] == 2
  output = apply(net, values, example_batch)
  assert output.scores.shape == (1, 3, k) and output.pair_logits.shape == (1, 3, k, k)
  assert output.nodes[0].tolist() == [[True, False] + [True] * (k - 2), [True] * k, [False] * k]
  if k == 2:
    return
  single = batch([[case(1, (2,) * (k + 1), (0, 1) + (0,) * (k - 2))]])
  np.testing.assert_allclose(
    apply(net, values, single).scores[0, 0], output.scores[0, 1], atol=1e-6
  )
  assert finite(gradient(net, values, example_batch))


def test_without_context_the_graph_has_one_node():
  net = quick(template="pair")
  example_batch = batch([[case(0, (3, 4), (1,)), case(1, (2, 3), (0,))]], spare=1)
  values = variables(net, 1)
  output = apply(net, values, example_batch)
  assert output.scores.shape == (1, 3) and output.nodes[0].tolist() == [[True], [True], [False]]
  np.testing.assert_allclose(apply(net, values, example_batch, method="align").edges[0, :2], 1)
  assert finite(gradient(net, values, example_batch))


def test_what_the_head_reads():
  """So wide is its input; all networks have one width within."""
  for reads in (("h",), ("r",), ("d",), ("cls",), ("h", "r", "d", "cls")):
    net = quick(head_reads=reads)
    params = variables(net)
    parts = params["params"]
    width = sum(1 if part == "d" else 8 for part in reads)
    assert parts["head"]["hidden"]["kernel"].shape == (width, net.hidden)
    for network in (parts["discriminator"], parts["edge_weights"]["score"]):
      assert network["hidden"]["kernel"].shape[1] == net.hidden
    scores = np.asarray(apply(net, params, packed()).scores)[packed().examples.mask > 0]
    assert np.isfinite(scores).all() and np.ptp(scores) > 0


def test_token_vectors_have_read_the_embeddings_by_role():
  """Of LOCT's and of CASSIE's encoder alike: they are what a picture of words compares."""
  loct = LocalContextCrossEncoder(
    encoder=Lookup(8),
    token="cls",
    pooler=False,
    dropout=0.0,
    template="context",
    segments="four",
    segments_start="normal",
  )
  for net in (loct, quick()):
    values = tiny.init(net, packed())
    words = np.asarray(values["params"]["encoder"]["word"])
    roles = np.asarray(values["params"]["segment_embeddings"]["embedding"])
    tokens = jax.tree.map(np.asarray, packed().tokens)
    vectors = tiny.apply(net, values, packed(), method="token_vectors")
    np.testing.assert_allclose(vectors, words[tokens.ids] + roles[tokens.role], atol=1e-6)


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
