"""Cross-VAEs over random words: padding, roles, samples, sizes, parts of the loss; its step is PyTorch's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from step_batches import batcher_of, table_of

from as2jax.config.check import check
from as2jax.data.batches import examples as layouts
from as2jax.data.record import Candidate, Question
from as2jax.data.text.input_templates import ROLES
from as2jax.encoders.static import StaticEncoder
from as2jax.layers.pooling import redundancy
from as2jax.models import cross_vae
from as2jax.models.cross_vae import CrossVAE, CrossVAELoss
from configs import squad_cross_vae, squad_dual_gru, squad_dual_vae

SIDES = ("question", "answer")
WORDS, WIDTH, MARKS = 30, 6, (2, 3)
SMALL = {
  "hidden_size": 5,
  "decoder_size": 7,
  "hops": 2,
  "attention_size": 4,
  "latent_size": 3,
  "question_length": 9,
  "answer_length": 12,
  "softmax_chunk": 16,
  "marks": MARKS,
  "output_size": WORDS,
}


@functools.cache
def model(**changes):
  fields = squad_cross_vae.get_config().model.to_dict() | SMALL | changes
  del fields["name"]
  return CrossVAE(StaticEncoder(WORDS, WIDTH, 0.0), **fields)


def loss(**changes):
  fields = squad_cross_vae.get_config().loss.to_dict() | changes
  del fields["name"]
  return CrossVAELoss(**fields)


@functools.cache
def batcher(negatives=0, *, packed=False, examples=8, shards=1, length=12):
  """Of eight questions with one answer each, of which two are shared by two, and random words.

  Beside it so many wrong candidates a question.
  """
  rng = np.random.default_rng(0)
  questions = tuple(
    Question(
      f"Q{i}",
      f"question {i}",
      (
        Candidate(f"D{i}", f"answer {i // 2 if i < 4 else i}", 1),
        *(Candidate(f"N{i}-{j}", f"wrong {i} {j}", 0) for j in range(negatives)),
      ),
    )
    for i in range(8)
  )
  texts, table = layouts.pairs(questions)
  asked = np.asarray([text.startswith("question") for (text,) in texts])
  counts = [int(rng.integers(3, 9 if q else 12)) for q in asked]
  offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
  ids = rng.integers(4, WORDS, offsets[-1]).astype(np.int32)
  ids[offsets[:-1]], ids[offsets[1:] - 1] = MARKS
  role = np.where(np.repeat(asked, counts), ROLES["question"], ROLES["candidate"])
  how = {"sampler": "ordered", "examples": examples, "packed": packed, "shards": shards}
  return batcher_of(table_of(ids, offsets, role), table, length, **how)


def batch(step=0, **settings):
  """A micro-batch `[shard, …]`."""
  b = batcher(**settings)
  plan = b.plan(b.sampler.blocks(), 0, 0)
  return jax.tree.map(lambda x: jnp.asarray(x[0]), b.batch(plan, step))


@functools.cache
def params(net):
  """Random values for everything, so that no term vanishes; no shape depends on the batch."""
  shapes = jax.eval_shape(lambda: net.init(jax.random.key(0), batch(), train=False))["params"]
  rng = np.random.default_rng(0)
  return jax.tree.map(lambda x: jnp.asarray(rng.normal(0, 0.4, x.shape), jnp.float32), shapes)


@functools.partial(jax.jit, static_argnums=0, static_argnames="train")
def run(net, values, example_batch, *, train=False, key=0):
  """The output; `key` is the seed of dropout and noise."""
  rngs = {"dropout": jax.random.key(key)} if train else None
  return net.apply({"params": values}, example_batch, train=train, rngs=rngs)


def members(example_batch, k):
  """Numbers of the texts of the examples' side k in the table, -1 for padding."""
  at = np.take_along_axis(
    np.asarray(example_batch.units.id), np.asarray(example_batch.examples.members[..., k]), 1
  )
  return np.where(example_batch.examples.mask > 0, at, -1)


def by_text(values, example_batch, k):
  """Values `[s, e, …]` of the real examples, in the order of their numbers of text k."""
  number = members(example_batch, k).ravel()
  order = np.argsort(number, kind="stable")
  return np.asarray(values).reshape(len(number), -1)[order][number[order] >= 0]


@pytest.mark.parametrize(
  "decoder, others",
  [
    ("gru", ({"packed": True, "length": 24, "shards": 2}, {"length": 20, "examples": 11})),
    ("mlp", ({"packed": True, "length": 24, "shards": 2},)),
  ],
)
def test_a_batch_has_the_likelihoods_of_its_parts(decoder, others):
  """All in one batch; packed in two shards; each in a longer row; two batches: the same."""
  net = model(decoder=decoder)
  whole = batch()
  values = params(net)
  wanted = run(net, values, whole)
  for settings in others:
    example_batch = batch(**settings)
    actual = run(net, values, example_batch)
    for k, side in enumerate(SIDES):
      one, two = getattr(wanted, side), getattr(actual, side)
      # By the question, whose texts differ: two questions share an answer.
      for name in ("log_likelihood", "mean", "words", "redundancy"):
        a, b = getattr(one, name), getattr(two, name)
        np.testing.assert_allclose(by_text(a, whole, 0), by_text(b, example_batch, 0), atol=2e-6)
  if decoder == "mlp":
    return
  parts = []
  for step in range(2):
    example_batch = batch(step, examples=4)
    parts.append(by_text(run(net, values, example_batch).answer.log_likelihood, example_batch, 0))
  np.testing.assert_allclose(
    np.concatenate(parts), by_text(wanted.answer.log_likelihood, whole, 0), atol=2e-6
  )


def test_words_beyond_a_sides_length_do_not_count():
  short, example_batch = model(question_length=4, answer_length=5), batch()
  values = params(short)
  long = run(short, values, example_batch)
  units = example_batch.units
  most = jnp.where(_role(example_batch) == ROLES["question"], 4, 5)
  cut = example_batch.replace(units=units.replace(length=jnp.minimum(units.length, most)))
  for a, b in zip(jax.tree.leaves(long), jax.tree.leaves(run(short, values, cut)), strict=True):
    np.testing.assert_array_equal(a, b)
  assert float(long.answer.words.max()) == 4


def _role(example_batch):
  place = example_batch.units.row * example_batch.tokens.role.shape[2] + example_batch.units.start
  return np.take_along_axis(np.asarray(example_batch.tokens.role).reshape(len(place), -1), place, 1)


@pytest.mark.parametrize("packed", [False, True])
def test_units_are_encoded_by_the_encoder_of_their_role(packed):
  net = model()
  example_batch = batch(packed=packed, length=24)
  values = params(net)
  encode = jax.jit(
    lambda example_batch: net.apply({"params": values}, example_batch, train=False, method="encode")
  )
  vectors, output = np.asarray(encode(example_batch).units), run(net, values, example_batch)
  for k, side in enumerate(SIDES):
    at = np.asarray(example_batch.examples.members[0, :, k])
    np.testing.assert_allclose(vectors[0, at], getattr(output, side).mean[0], atol=1e-6)
  unused = np.asarray(example_batch.units.length) == 0
  assert unused.any() and not vectors[unused].any()
  # Of one role alone: the vectors are those of the mixed batch.
  units, answers = example_batch.units, _role(example_batch) == ROLES["candidate"]
  only = example_batch.replace(units=units.replace(length=jnp.where(answers, units.length, 0)))
  mine = answers & ~unused
  np.testing.assert_allclose(np.asarray(encode(only).units)[mine], vectors[mine], atol=1e-6)
  # The roles of all turned round: the other encoder's.
  tokens = example_batch.tokens.replace(role=1 - example_batch.tokens.role)
  turned = encode(example_batch.replace(tokens=tokens)).units
  assert np.abs(np.asarray(turned) - vectors)[~unused].min() > 1e-6


def test_words_that_are_not_generated_are_read_but_do_not_count():
  few, example_batch = model(output_size=20), batch()
  values, ids = params(few), np.asarray(example_batch.tokens.ids)
  seen = jax.jit(
    lambda example_batch: few.apply(
      {"params": values}, example_batch, train=False, method="reconstruct"
    )["answer"]
  )
  actual = seen(example_batch)
  at = np.take_along_axis(
    np.asarray(example_batch.units.row), np.asarray(example_batch.examples.members[..., 1]), 1
  )
  texts = ids[0][at[0]][:, 1:]  # a unit a row
  np.testing.assert_array_equal(actual["all_words"][0], (texts > 0).sum(1))
  np.testing.assert_array_equal(actual["words"][0], ((texts > 0) & (texts < 20)).sum(1))
  assert 0 < actual["words"].sum() < actual["all_words"].sum()
  # Another such word in its place: it is read, so what follows it is more or less likely.
  other = jnp.asarray(np.where(ids >= 20, 49 - ids, ids))
  again = seen(example_batch.replace(tokens=example_batch.tokens.replace(ids=other)))
  np.testing.assert_array_equal(again["words"], actual["words"])
  assert np.abs(again["log_likelihood"] - actual["log_likelihood"]).max() > 1e-3
  # The decoder's scores have none for its row.
  assert values["answer_decoder"]["words"]["bias"].shape == (20,)


def test_training_samples_and_prediction_does_not():
  net, example_batch = model(match_on="sample"), batch()
  values = params(net)
  one, two, three = (
    run(net, values, example_batch, train=train, key=key).question
    for train, key in ((True, 0), (True, 1), (False, 0))
  )
  assert np.abs(one.matched - two.matched).max() > 0.1
  assert np.abs(one.log_likelihood - two.log_likelihood).max() > 1e-3
  np.testing.assert_array_equal(three.matched, three.mean)
  np.testing.assert_array_equal(one.mean, three.mean)


def test_how_encoders_start():
  """Apart, every matrix differs; equal, none does; σ² starts where it is told."""
  example_batch, start = batch(), {}
  for answer in ("apart", "equal"):
    net = model(answer_start=answer, log_variance_start=-4.0)
    init = jax.jit(functools.partial(net.init, train=False))
    values = init(jax.random.key(0), example_batch)["params"]
    flat = net.initial_params(traverse_util.flatten_dict(values, sep="/"))
    sides = [{k: v for k, v in flat.items() if k.startswith(f"{side}_encoder/")} for side in SIDES]
    assert len(sides[0]) == len(sides[1]) > 5
    matrices = [k for k, v in sides[0].items() if v.ndim == 2 and np.ptp(v) > 0]
    start[answer] = [
      np.array_equal(sides[0][k], sides[1][k.replace("question", "answer", 1)]) for k in matrices
    ]
    np.testing.assert_array_equal(sides[1]["answer_encoder/log_variance/bias"], -4)
  assert not any(start["apart"]) and all(start["equal"])


@pytest.mark.parametrize(
  "config, crossing, decoder",
  [
    (squad_cross_vae, "cross", "gru"),
    (squad_cross_vae, "cross", "mlp"),
    (squad_dual_vae, "dual", "gru"),
    (squad_dual_gru, "none", "gru"),
  ],
)
def test_paper_sizes(config, crossing, decoder):
  """Parameters counted by hand, with 50,000 words of 768."""
  job_config = config.get_config("mlp" if decoder == "mlp" else None)
  check(job_config)
  assert (
    job_config.model.crossing == crossing and job_config.epochs == job_config.loss.epochs == 100
  )
  assert job_config.optimizer.rate == 1e-5 and job_config.batch.examples == 128
  fields = {k: v for k, v in job_config.model.to_dict().items() if k != "name"}
  net = CrossVAE(StaticEncoder(50_000, 768, 0.0), **fields, marks=MARKS, output_size=50_000)
  shapes = jax.eval_shape(
    lambda: net.init(jax.random.key(0), batch(examples=8, length=64), train=False)
  )["params"]
  gru = lambda d: 3 * 768 * (d + 768 + 2)
  pooled = 4 * 2 * 768
  encoder = (
    2 * gru(768) + 350 * (2 * 768 + 4) + (1 if crossing == "none" else 2) * 512 * (pooled + 1)
  )
  text = 50_000 + (768 * 513 if decoder == "mlp" else 768 * 513 + gru(768 + 512))
  decoders = 0 if crossing == "none" else 2 * text
  assert sum(x.size for x in jax.tree.leaves(shapes)) == (50_000 * 768 + 2 * encoder + decoders + 2)


def mean(term):
  values, weights = np.broadcast_arrays(np.asarray(term.values), np.asarray(term.weights))
  assert term.reduction == "mean"
  return float((values * weights).sum() / weights.sum())


def test_the_redundancy_of_hops_by_hand():
  a = np.random.default_rng(0).random((3, 2, 5))
  wanted = [np.square(hops @ hops.T - np.eye(2)).sum() for hops in a]
  np.testing.assert_allclose(redundancy(jnp.asarray(a, jnp.float32)), wanted, rtol=1e-5)


def test_annealing_by_hand():
  """100 epochs: 0.02 an epoch, 1 from epoch 50 on."""
  for progress, share in ((0, 0), (1, 0.02), (12.5, 0.25), (50, 1), (99, 1)):
    assert float(cross_vae.annealed(jnp.float32(progress), 100)) == pytest.approx(share)


@pytest.mark.parametrize("negatives, shards", [(0, 1), (1, 1), (0, 2), (2, 2)])
def test_positives_and_negatives_by_brute_force(negatives, shards):
  example_batch = batch(negatives=negatives, examples=26, shards=shards)
  examples = example_batch.examples
  aligned = examples.mask * (examples.labels[..., 0] == 1)
  positive, negative = map(np.asarray, cross_vae.pairs_of(example_batch, aligned))
  ids = [
    np.take_along_axis(
      np.asarray(example_batch.units.id), np.asarray(examples.members[..., k]), 1
    ).ravel()
    for k in (0, 1)
  ]
  real, label = np.asarray(examples.mask).ravel() > 0, np.asarray(examples.labels).ravel()
  assert real.sum() == 8 * (1 + negatives) and not real.all()
  n, shared = len(real), 0
  for i in range(n):
    for j in range(n):
      plus, minus = (x.reshape(n, n)[i, j] for x in (positive, negative))
      if not (real[i] and real[j]):
        assert plus == minus == 0
      elif i == j:
        assert (plus, minus) == (label[i], 1 - label[i])
      else:
        same = ids[0][i] == ids[0][j] or ids[1][i] == ids[1][j]
        shared += ids[1][i] == ids[1][j]
        assert (plus, minus) == (0, 0 if same else 1)
  assert shared == 4  # two answers of two questions each, either way


def test_drawn_negatives_are_k_of_the_allowed():
  mask = jnp.asarray([[[1.0, 1, 0, 1], [0, 0, 0, 1]]])
  draw = jnp.asarray([[[0.2, 0.9, 0.99, 0.5], [0.9, 0.8, 0.7, 0.1]]])
  np.testing.assert_array_equal(cross_vae.drawn(mask, draw, 2), [[[0, 1, 0, 1], [0, 0, 0, 1]]])
  np.testing.assert_array_equal(cross_vae.drawn(mask, draw, 9), mask)


def test_sampled_negatives_differ_from_step_to_step():
  example_batch, net = batch(), model()
  values = params(net)
  chosen = []
  for key in range(2):
    output = run(net, values, example_batch, train=True, key=key)
    term = loss(negatives="sampled:2")(output, example_batch, jnp.float32(1))["matching_negative"]
    chosen.append(np.asarray(term.weights))
    np.testing.assert_array_equal(chosen[-1].sum(-1), 2)
  assert np.any(chosen[0] != chosen[1])


def test_the_softmax_over_a_batch_in_numpy():
  example_batch, net = batch(negatives=1, examples=16), model(match_on="mean")
  output = run(net, params(net), example_batch, train=True)
  terms = loss(matching="softmax", gamma=3.0)(output, example_batch, jnp.float32(1))
  assert "matching_positive" not in terms and terms["matching_softmax"].scale == 3.0
  right = jnp.asarray(
    (example_batch.examples.labels[..., 0] == 1) & (example_batch.examples.mask > 0), jnp.float32
  )
  positive, negative = (np.asarray(x[0]) for x in cross_vae.pairs_of(example_batch, right))
  q, a = (np.asarray(x.mean[0], np.float64) for x in (output.question, output.answer))
  unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
  weight = np.exp(float(output.scale) * unit(q) @ unit(a).T)
  values = [
    -np.log(weight[i, j] / (weight[i, j] + weight[i][negative[i] > 0].sum()))
    for i, j in zip(*np.nonzero(positive))
  ]
  assert len(values) == 8
  assert mean(terms["matching_softmax"]) == pytest.approx(np.mean(values), rel=1e-5)


def test_the_mean_over_words_and_what_is_logged_of_latents():
  example_batch, net = batch(), model()
  output = run(net, params(net), example_batch, train=True)
  side = output.question
  each = np.asarray(cross_vae.kl_of_dimensions(side.mean, side.log_variance))[0].mean(0)
  terms = loss(reconstruction="mean")(output, example_batch, jnp.float32(50))
  per_word = np.asarray(-side.log_likelihood / side.words)[0].mean()
  assert mean(terms["reconstruction_question"]) == pytest.approx(per_word, rel=1e-5)
  assert mean(terms["kl_question"]) == pytest.approx(each.sum(), rel=1e-5)
  signal = np.asarray(side.mean)[0].var(0).sum()
  noise = np.exp(np.asarray(side.log_variance))[0].mean(0).sum()
  assert mean(terms["signal_question"]) == pytest.approx(signal / (signal + noise), rel=1e-5)
