"""CASSIE: padding, packing, context, joint, mutual information by hand, gradients, sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from as2jax.encoders.bert import BertEncoder
from as2jax.encoders.static import StaticEncoder
from as2jax.encoders.xlnet import XLNetEncoder
from as2jax.errors import InputError
from as2jax.models.cassie import CassieLoss, CassieOutput, judged_pairs
from tiny_cassie import FIELDS, LOSS, apply, batch, case, encoder, gradient, model, variables

# Judged and unjudged context, a missing sentence, no question, no candidate.
CASES = (case(0), case(1, labels=(0, 1, 1)), case(2, (3, 4, 0, 2), (1, -1, 0)),
         case(3, (0, 3, 2, 2), (0, 1, 0)), case(4, (3, 0, 2, 2), (1, 1, 0)), case(5, (2, 2, 0, 0)))


def packed():
  return batch([[CASES[0], CASES[1]], [CASES[2], CASES[5]]], [[CASES[3], CASES[4]]], spare=2,
               length=56)


def alone():
  """The same examples, one a row."""
  return batch([[c] for c in (CASES[0], CASES[1], CASES[2], CASES[5])],
               [[c] for c in (CASES[3], CASES[4])], length=40)


def test_a_padded_packed_batch_gives_the_numbers_of_single_examples():
  net = model()
  values = variables(net)
  one, many = apply(net, values, alone()), apply(net, values, packed())
  for field in ("scores", "logits", "pair_logits", "nodes", "sentences"):
    found, expected = np.asarray(getattr(many, field)), np.asarray(getattr(one, field))
    for s, e in ((0, 4), (1, 2)):
      np.testing.assert_allclose(found[s, :e], expected[s, :e], atol=2e-6, err_msg=field)
  assert np.ptp(np.asarray(one.scores)[0]) > 0.01
  (loss, slopes), (other, those) = (gradient(net, values, made) for made in (alone(), packed()))
  np.testing.assert_allclose(loss, other, atol=1e-6)
  for a, b in zip(jax.tree.leaves(slopes), jax.tree.leaves(those), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("unrolled", [False, True])
def test_empty_sentences_mask_nodes_and_leave_gradients_finite(unrolled):
  net = model(transport_gradient="unrolled") if unrolled else model()
  values, made = variables(net), packed()
  output = apply(net, values, made)
  assert output.nodes[0, :4].tolist() == [[True] * 3, [True] * 3, [True, False, True],
                                          [True, False, False]]
  assert output.nodes[1, :2].tolist() == [[False] * 3, [False, True, True]]
  assert not output.nodes[:, 4:].any() and jnp.isfinite(output.scores).all()
  assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(gradient(net, values, made)))
  nothing = batch([[case(0, (0, 0, 0, 0), (1, 1, 1))]], spare=1)
  assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(gradient(net, values, nothing)))


def test_a_padding_node_is_part_of_the_graph():
  net, values, made = model(padding_node=True), variables(model()), packed()
  plain, output = apply(model(), values, made), apply(net, values, made)
  assert output.nodes[0, 2:4].all() and not output.nodes[1, 0].any()
  assert output.nodes[1, 1].tolist() == [False, True, True]
  assert abs(float(output.scores[0, 2] - plain.scores[0, 2])) > 1e-4
  np.testing.assert_allclose(output.scores[0, :2], plain.scores[0, :2], atol=1e-6)
  np.testing.assert_array_equal(output.sentences, plain.sentences)
  found = apply(net, values, made, method="align")
  np.testing.assert_allclose(found.edges[0, 2].sum(-1), 1, atol=1e-6)


def test_permuting_the_context_permutes_the_result():
  """Previous and next change places in the words, the tokens staying where they are."""
  net = model(segments="none")
  values, made = variables(net), packed()
  order = np.array([0, 2, 1])
  role = jnp.asarray([0, 1, 3, 2])[made.words.role]
  by_role = np.lexsort((np.arange(role.shape[1])[None].repeat(2, 0), role, made.words.unit,
                        made.words.length == 0), axis=-1)
  words = jax.tree.map(lambda x: jnp.take_along_axis(x, jnp.asarray(by_role), 1),
                       made.words.replace(role=role))
  labels = made.examples.labels[..., order]
  turned = made.replace(words=words, examples=made.examples.replace(labels=labels))
  a, b = apply(net, values, made), apply(net, values, turned)
  np.testing.assert_allclose(a.scores, b.scores, atol=1e-6)
  np.testing.assert_allclose(a.pair_logits[:, :, order][..., order], b.pair_logits, atol=1e-6)
  np.testing.assert_allclose(gradient(net, values, made)[0], gradient(net, values, turned)[0],
                             atol=1e-6)


def terms(labels, sentences, logits, pairs, **fields):
  """The loss of one example with the given numbers."""
  arrays = [jnp.asarray(x, jnp.float32)[None, None] for x in (logits, pairs)]
  there = jnp.asarray(sentences, bool)[None, None]
  output = CassieOutput(arrays[0][..., 0], *arrays, there, there)
  made = batch([[case(0, (1,) * (len(labels) + 1), labels)]])
  loss = CassieLoss(**{"gamma": 0.3, "mi_self_pairs": True, **fields})
  return {k: (float((t.values * t.weights).sum()), t) for k, t in
          loss(output, made, jnp.float32(0)).items()}


def test_mutual_information_by_hand():
  u = np.arange(9).reshape(3, 3) / 4 - 1
  log_u, log_not = -np.log1p(np.exp(-u)), -np.log1p(np.exp(u))
  # c and next are answers, previous is not: I+ is (1,1), (1,3), (3,1), (3,3); I− (1,2), (3,2).
  expected = -(log_u[0, 0] + log_u[0, 2] + log_u[2, 0] + log_u[2, 2]) - (log_not[0, 1]
                                                                         + log_not[2, 1])
  found = terms((1, 0, 1), (1, 1, 1), [0.5], u)
  assert found["mutual_information"][0] == pytest.approx(expected, rel=1e-6)
  assert found["mutual_information"][1].scale == 0.3 and found["bce"][1].scale == 1.0
  assert found["bce"][0] == pytest.approx(np.log1p(np.exp(-0.5)), rel=1e-6)
  assert (found["answer_pairs"][0], found["contrast_pairs"][0]) == (4, 2)
  without = terms((1, 0, 1), (1, 1, 1), [0.5], u, mi_self_pairs=False)
  assert without["mutual_information"][0] == pytest.approx(
      expected + log_u[0, 0] + log_u[2, 2], rel=1e-6)
  unknown = terms((1, -1, 0), (1, 1, 0), [0.5], u)  # next is not there, previous not judged
  assert unknown["mutual_information"][0] == pytest.approx(-log_u[0, 0], rel=1e-6)
  assert (unknown["unjudged_sentences"][0], unknown["masked_nodes"][0]) == (1, 1)
  assert terms((0, 0, 0), (1, 1, 1), [0.5], u)["mutual_information"][0] == 0
  assert terms((-1, 1, 0), (1, 1, 1), [0.5], u)["bce"][1].weights.sum() == 0


def test_cross_entropy_is_summed_over_the_candidates_of_joint():
  logits = [0.5, -1.0, 2.0, 3.0]
  found = terms((1, 0, 0, -1), (1, 1, 0, 1), logits, np.zeros((4, 4)))
  assert found["bce"][0] == pytest.approx(np.log1p(np.exp(-0.5)) + np.log1p(np.exp(-1.0)), rel=1e-6)
  both, apart = judged_pairs(jnp.asarray([[[1, 0, 0, -1]]]), jnp.ones((1, 1, 4), bool),
                             self_pairs=True)
  assert both[0, 0].nonzero()[0].tolist() == [0] and apart[0, 0].sum() == 2


def test_the_loss_is_a_mean_over_real_examples():
  net, values = model(), variables(model())
  output = apply(net, values, packed())
  found = LOSS(output, packed(), jnp.float32(0))
  assert found["mutual_information"].weights.sum() == 6
  assert found["bce"].weights.sum() == 5  # a candidate without words, and a question, are left out
  assert found["masked_nodes"].values[0, :4].tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
@pytest.mark.parametrize("segments", ["four", "three", "none"])
def test_segment_embeddings_enter_every_encoder(kind, segments):
  lm = encoder() if kind == "bert" else XLNetEncoder(
    vocab_size=40, hidden_size=8, num_layers=1, num_heads=2, intermediate_size=12,
    attention_type="bi", clamp_len=-1, layer_norm_eps=1e-12, hidden_dropout=0.0,
    attention_dropout=0.0, activation="gelu", dtype="float32", precision=None, unroll=0,
    remat=False)
  net = model(encoder=lm, segments=segments)
  values = variables(net)
  rows = {"four": 4, "three": 3, "none": 0}[segments]
  table = values["params"].get("segment_embeddings", {"embedding": np.zeros((0, 8))})["embedding"]
  assert table.shape == (rows, 8)
  made = packed()
  role = jnp.where(made.tokens.role == 3, 2, made.tokens.role)  # next as previous
  moved = made.replace(tokens=made.tokens.replace(role=role))
  change = float(jnp.abs(apply(net, values, made).scores - apply(net, values, moved).scores).max())
  assert change > 1e-5 if segments == "four" else change == 0


@pytest.mark.parametrize("changes", [
  {}, {"transport_gradient": "unrolled"}, {"alignment": "mean"}, {"graph_layers": 0},
  {"segments": "none"}], ids=str)
def test_one_step_moves_every_parameter(changes):
  net = model(**changes)
  values = variables(net)
  slopes = gradient(net, values, packed())[1]["params"]
  for path, slope in jax.tree_util.tree_leaves_with_path(slopes):
    name = jax.tree_util.keystr(path)
    if "'key']['bias']" not in name:  # the softmax of the encoder's attention cancels it
      assert float(jnp.abs(slope).max()) > 1e-7, name


def test_a_handful_of_examples_is_overfitted():
  net = model()
  values = net.init(jax.random.key(0), packed(), train=False)
  rule = optax.adam(1e-2)
  state = rule.init(values)

  @jax.jit
  def step(values, state):
    loss, slopes = gradient(net, values, packed())
    updates, state = rule.update(slopes, state)
    return optax.apply_updates(values, updates), state, loss

  losses = []
  for _ in range(150):
    values, state, loss = step(values, state)
    losses.append(float(loss))
  assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize("changes", [
  {"alignment": "mean"}, {"marginals": "uniform"}, {"stop_words": False}, {"graph_layers": 0},
  {"graph_layers": 1}, {"segments": "none"}, {"epsilon": 0.5}, {"question_words": 2},
  {"sentence_words": 2}, {"epsilon_relative": False}], ids=str)
def test_every_ablation_changes_the_scores(changes):
  base = variables(model())["params"]
  net = model(**changes)
  own = jax.eval_shape(lambda: net.init(jax.random.key(0), packed(), train=False))["params"]
  values = {"params": {k: base[k] for k in own}}  # the very same weights
  change = apply(net, values, packed()).scores - apply(model(), {"params": base}, packed()).scores
  assert float(jnp.abs(change).max()) > 1e-6


@pytest.mark.parametrize("k", [2, 5])
def test_joint_scores_every_candidate(k):
  net = model(template="joint")
  assert net.layout == "joint" and model().layout == "single"
  counts = (2, 2, 0) + (2,) * (k - 2)
  labels = (1, -1) + (0,) * (k - 2)
  made = batch([[case(0, counts, labels)], [case(1, (2,) * (k + 1), (0, 1) + (0,) * (k - 2))]],
               spare=1)
  values = variables(net, k)
  assert values["params"]["segment_embeddings"]["embedding"].shape[0] == 2
  output = apply(net, values, made)
  assert output.scores.shape == (1, 3, k) and output.pair_logits.shape == (1, 3, k, k)
  assert output.nodes[0].tolist() == [[True, False] + [True] * (k - 2), [True] * k, [False] * k]
  single = batch([[case(1, (2,) * (k + 1), (0, 1) + (0,) * (k - 2))]])
  np.testing.assert_allclose(apply(net, values, single).scores[0, 0], output.scores[0, 1],
                             atol=1e-6)
  slopes = gradient(net, values, made)
  assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(slopes))


def test_without_context_the_graph_has_one_node():
  net = model(template="pair")
  made = batch([[case(0, (3, 4), (1,)), case(1, (2, 3), (0,))]], spare=1)
  values = variables(net, 1)
  output = apply(net, values, made)
  assert output.scores.shape == (1, 3) and output.nodes[0].tolist() == [[True], [True], [False]]
  np.testing.assert_allclose(apply(net, values, made, method="align").edges[0, :2], 1)
  assert jnp.isfinite(gradient(net, values, made)[0])


def test_a_picture_has_what_it_needs():
  net, values, made = model(), variables(model()), packed()
  found = apply(net, values, made, method="align")
  words = made.words
  for s, u, k in ((0, 0, 0), (0, 1, 2)):
    question, sentence = found.units.question[s, u], found.units.sentence[s, u, k]
    for number, role in ((question, 0), (sentence, k + 1)):
      real = number[number >= 0]
      assert len(real) and (words.unit[s, real] == u).all() and (words.role[s, real] == role).all()
    plan = np.asarray(found.units.plan[s, u, k])
    assert plan.sum() == pytest.approx(1, abs=1e-5)
    assert not plan[np.asarray(question) < 0].any()
    assert found.units.selected[s, u, k].any()
  np.testing.assert_array_equal(found.scores, apply(net, values, made).scores)


def test_dropout_is_the_encoders_and_ends_with_training():
  net = model(encoder=encoder(hidden_dropout=0.5))
  values, made = variables(net), packed()
  a, b = (apply(net, values, made, train=True, key=jax.random.key(n)).scores for n in (0, 1))
  assert float(jnp.abs(a - b).max()) > 1e-4
  still = [np.asarray(apply(net, values, made).scores) for _ in range(2)]
  np.testing.assert_array_equal(*still)


def test_wrong_use_is_named():
  made = packed()
  shape = lambda net, b=made: jax.eval_shape(lambda: net.init(jax.random.key(0), b, train=False))
  for changes, message in (({"template": "single"}, "model.template = 'single'"),
                           ({"segments": "two"}, "model.segments = 'two'"),
                           ({"marginals": "idf"}, "model.marginals"),
                           ({"encoder": StaticEncoder(40, 8, 0.0)}, "use bert, roberta or xlnet")):
    with pytest.raises(InputError, match=message):
      shape(model(**changes))
  with pytest.raises(InputError, match="words, and this batch has none"):
    shape(model(), made.replace(words=None))


def test_the_papers_sizes():
  """RoBERTa-base, 64 × 256 tokens, FFNs of 400."""
  roberta = BertEncoder(vocab_size=50265, hidden_size=768, num_layers=12, num_heads=12,
                        intermediate_size=3072, max_positions=514, type_vocab_size=1,
                        position_offset=2)
  net = model(**{**FIELDS, "encoder": roberta, "hidden": 400, "question_words": 16,
                 "sentence_words": 128})
  made = batch(*[[[case(0)]] * 8] * 8, length=256)
  values = jax.eval_shape(lambda: net.init(jax.random.key(0), made, train=False))
  output = jax.eval_shape(lambda v: net.apply(v, made, train=False), values)
  assert output.scores.shape == (8, 8) and output.pair_logits.shape == (8, 8, 3, 3)
  sizes = lambda name: {k: v.shape for k, v in jax.tree_util.tree_leaves_with_path(
      values["params"][name])}
  assert set(sizes("discriminator").values()) == {(1536, 400), (400,), (400, 1), (1,)}
  assert set(sizes("edge_weights").values()) == {(770, 400), (400,), (400, 1)}
  assert set(sizes("convolutions_1").values()) == {(768, 768), (768,)}
  assert values["params"]["segment_embeddings"]["embedding"].shape == (4, 768)
