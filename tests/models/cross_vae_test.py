"""Cross-VAEs' forward pass: who generates what, padding and packing, roles, samples, sizes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from tiny_cross_vae import MARKS, WIDTH, WORDS, batch, batcher, model, params, run

from as2jax.config.check import check
from as2jax.data.text.tokenise import ROLES
from as2jax.models.texts import gather_text
from as2jax.runtime.errors import InputError
from configs import squad_cross_vae, squad_dual_gru, squad_dual_vae

SIDES = ("question", "answer")


def members(made, k):
  """Numbers of the texts of the examples' side k in the table, -1 for padding."""
  at = np.take_along_axis(np.asarray(made.units.id), np.asarray(made.examples.members[..., k]), 1)
  return np.where(made.examples.mask > 0, at, -1)


def by_text(values, made, k):
  """Values `[s, e, …]` of the real examples, in the order of their numbers of text k."""
  number = members(made, k).ravel()
  order = np.argsort(number, kind="stable")
  return np.asarray(values).reshape(len(number), -1)[order][number[order] >= 0]


@functools.cache
def gradients(crossing, decoder):
  """Absolute gradient of each side's reconstruction, by parameter."""
  net, made = model(crossing, decoder=decoder), batch()

  def value(values):
    output = net.apply({"params": values}, made, train=True, rngs={"dropout": jax.random.key(0)})
    return jnp.stack([getattr(output, of).log_likelihood.sum() for of in SIDES])

  found = jax.tree.map(np.asarray, jax.jit(jax.jacrev(value))(params(net)))
  return {
    of: {
      name: sum(float(np.abs(x[k]).sum()) for x in jax.tree.leaves(tree))
      for name, tree in found.items()
    }
    for k, of in enumerate(SIDES)
  }


@pytest.mark.parametrize("crossing, decoder", [("cross", "gru"), ("dual", "mlp")])
@pytest.mark.parametrize("of", SIDES)
def test_who_generates_what(crossing, decoder, of):
  other = SIDES[1 - SIDES.index(of)]
  source, unused = (other, of) if crossing == "cross" else (of, other)
  found = gradients(crossing, decoder)[of]
  assert found[f"{source}_encoder"] > 0 and found[f"{of}_decoder"] > 0
  assert found[f"{unused}_encoder"] == found[f"{other}_decoder"] == 0
  assert found["match_scale"] == found["match_bias"] == 0 and found["encoder"] > 0


def test_dual_grus_have_neither_decoder_nor_variance():
  net, made = model("none"), batch()
  values = params(net)
  assert set(values) == {
    "encoder",
    "question_encoder",
    "answer_encoder",
    "match_scale",
    "match_bias",
  }
  assert "log_variance" not in values["question_encoder"]
  output = run(net, values, made, train=True)
  for side in (output.question, output.answer):
    assert side.log_likelihood is None and side.log_variance is None
    np.testing.assert_array_equal(side.latent, side.mean)


@pytest.mark.parametrize(
  "decoder, others",
  [
    ("gru", ({"packed": True, "length": 24, "shards": 2}, {"length": 20, "examples": 11})),
    ("mlp", ({"packed": True, "length": 24, "shards": 2},)),
  ],
)
def test_a_batch_has_the_likelihoods_of_its_parts(decoder, others):
  """All in one batch; packed in two shards; each in a longer row; two batches: the same."""
  net = model("cross", decoder=decoder)
  whole = batch()
  values = params(net)
  wanted = run(net, values, whole)
  for settings in others:
    made = batch(**settings)
    found = run(net, values, made)
    for k, side in enumerate(SIDES):
      one, two = getattr(wanted, side), getattr(found, side)
      # By the question, whose texts differ: two questions share an answer.
      for a, b in (
        (one.log_likelihood, two.log_likelihood),
        (one.mean, two.mean),
        (one.words, two.words),
        (one.redundancy, two.redundancy),
      ):
        np.testing.assert_allclose(by_text(a, whole, 0), by_text(b, made, 0), atol=2e-6)
  if decoder == "mlp":
    return
  b = batcher(examples=4)
  plan, parts = b.plan(b.sampler.blocks(), 0, 0), []
  assert len(plan) == 2
  for i in range(2):
    made = jax.tree.map(lambda x: jnp.asarray(x[0]), b.batch(plan, i))
    parts.append(by_text(run(net, values, made).answer.log_likelihood, made, 0))
  np.testing.assert_allclose(
    np.concatenate(parts), by_text(wanted.answer.log_likelihood, whole, 0), atol=2e-6
  )


def test_the_likelihood_is_of_the_words_after_the_first_mark():
  made = batch()
  length = np.take_along_axis(
    np.asarray(made.units.length), np.asarray(made.examples.members[..., 1]), 1
  )
  for decoder, words in (("gru", length - 1), ("mlp", length - 2)):
    net = model("cross", decoder=decoder)
    np.testing.assert_array_equal(run(net, params(net), made).answer.words, words)


def test_words_beyond_a_sides_length_do_not_count():
  short, made = model("cross", question_length=4, answer_length=5), batch()
  values = params(short)
  long = run(short, values, made)
  cut = made.replace(
    units=made.units.replace(
      length=jnp.minimum(made.units.length, jnp.where(_role(made) == ROLES["question"], 4, 5))
    )
  )
  for a, b in zip(jax.tree.leaves(long), jax.tree.leaves(run(short, values, cut)), strict=True):
    np.testing.assert_array_equal(a, b)
  assert float(long.answer.words.max()) == 4


def _role(made):
  place = made.units.row * made.tokens.role.shape[2] + made.units.start
  return np.take_along_axis(np.asarray(made.tokens.role).reshape(len(place), -1), place, 1)


@pytest.mark.parametrize("packed", [False, True])
def test_units_are_encoded_by_the_encoder_of_their_role(packed):
  net = model()
  made = batch(packed=packed, length=24)
  values = params(net)
  encode = jax.jit(lambda made: net.apply({"params": values}, made, train=False, method="encode"))
  vectors, output = np.asarray(encode(made).units), run(net, values, made)
  for k, side in enumerate(SIDES):
    at = np.asarray(made.examples.members[0, :, k])
    np.testing.assert_allclose(vectors[0, at], getattr(output, side).mean[0], atol=1e-6)
  unused = np.asarray(made.units.length) == 0
  assert unused.any() and not vectors[unused].any()
  # Of one role alone: the vectors are those of the mixed batch.
  only = made.replace(
    units=made.units.replace(
      length=jnp.where(_role(made) == ROLES["candidate"], made.units.length, 0)
    )
  )
  mine = (_role(made) == ROLES["candidate"]) & ~unused
  np.testing.assert_allclose(np.asarray(encode(only).units)[mine], vectors[mine], atol=1e-6)
  # The roles of all turned round: the other encoder's.
  turned = encode(made.replace(tokens=made.tokens.replace(role=1 - made.tokens.role))).units
  assert np.abs(np.asarray(turned) - vectors)[~unused].min() > 1e-6


def test_encoders_are_shared_with_initialisation_by_encode():
  net, made = model(), batch()
  both = [
    jax.eval_shape(lambda m=m: net.init(jax.random.key(0), made, train=False, method=m))
    for m in ("__call__", "encode")
  ]
  one, other = (set(x["params"]) for x in both)
  assert other <= one and {"question_encoder", "answer_encoder", "encoder"} <= other


def test_training_samples_and_prediction_does_not():
  net, made = model(word_dropout=0.5), batch()
  values = params(net)
  one, two, three = (
    run(net, values, made, train=train, key=key).question
    for train, key in ((True, 0), (True, 1), (False, 0))
  )
  assert np.abs(one.latent - two.latent).max() > 0.1
  assert np.abs(one.log_likelihood - two.log_likelihood).max() > 1e-3
  np.testing.assert_array_equal(three.latent, three.mean)
  np.testing.assert_array_equal(one.mean, three.mean)
  # A sample has the posterior's moments.
  draws = np.stack([run(net, values, made, train=True, key=k).question.latent for k in range(400)])
  spread = np.exp(np.asarray(one.log_variance) / 2)
  assert np.abs((draws.mean(0) - one.mean) / spread).max() < 5 / 20
  assert np.abs(draws.std(0) / spread - 1).max() < 0.2


def test_word_dropout_leaves_marks_and_unknown_words_to_read():
  """With every word dropped, whatever the text, and nothing tied to the table."""
  net, made = model(word_dropout=1 - 1e-9, tied=False), batch()
  values = params(net)
  text = gather_text(made.tokens, made.units, made.examples.members[..., 1], made.examples.mask, 12)

  @jax.jit
  @jax.grad
  def slope(table):
    bound = net.bind(
      {"params": {**values, "encoder": {"embeddings": {"word": table}}}},
      rngs={"dropout": jax.random.key(0)},
    )
    return bound._likelihood("answer", jnp.ones((*text.length.shape, 3)), text, True).sum()

  rows = np.abs(slope(values["encoder"]["embeddings"]["word"])).sum(1) > 0
  assert set(np.flatnonzero(rows)) == {1, MARKS[0]}


def test_how_encoders_start():
  """Apart, every matrix differs; equal, none does; σ² starts where it is told."""
  made, start = batch(), {}
  for answer in ("apart", "equal"):
    net = model(answer_start=answer, log_variance_start=-4.0)
    values = net.init(jax.random.key(0), made, train=False)["params"]
    flat = net.initial_params(traverse_util.flatten_dict(values, sep="/"))
    sides = [{k: v for k, v in flat.items() if k.startswith(f"{side}_encoder/")} for side in SIDES]
    assert len(sides[0]) == len(sides[1]) > 5
    matrices = [k for k, v in sides[0].items() if v.ndim == 2 and np.ptp(v) > 0]
    start[answer] = [
      np.array_equal(sides[0][k], sides[1][k.replace("question", "answer", 1)]) for k in matrices
    ]
    np.testing.assert_array_equal(sides[1]["answer_encoder/log_variance/bias"], -4)
    assert {k for k in flat if "encoder/" not in k} == {
      k for k in traverse_util.flatten_dict(values, sep="/") if "encoder/" not in k
    }
  assert not any(start["apart"]) and all(start["equal"])


def test_a_wrong_field_is_named():
  made = batch()
  for field, value in (
    ("crossing", "zigzag"),
    ("decoder", "lstm"),
    ("match_on", "mode"),
    ("answer_start", "same"),
  ):
    with pytest.raises(InputError, match=f"model.{field} = '{value}': use one of"):
      model(**{field: value}).init(jax.random.key(0), made, train=False)
  with pytest.raises(InputError, match="'none' has no decoder"):
    net = model("none")
    net.apply({"params": params(net)}, jnp.ones((1, 3)), "question", 3, method="generate")


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
  made = config.get_config("mlp" if decoder == "mlp" else None)
  check(made)
  assert made.model.crossing == crossing and made.epochs == made.loss.epochs == 100
  assert made.optimizer.rate == 1e-5 and made.batch.examples == 128
  fields = {k: v for k, v in made.model.to_dict().items() if k != "name"}
  net = type(model())(
    type(model().encoder)(50_000, 768, 0.0), **fields, marks=MARKS, output_size=50_000
  )
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


def test_the_epochs_of_annealing_follow_those_of_the_run():
  made = squad_cross_vae.get_config("sample")
  assert made.epochs == made.loss.epochs == 3
  made.epochs = 7
  assert made.loss.epochs == 7


@pytest.mark.parametrize("config", [squad_cross_vae, squad_dual_vae, squad_dual_gru])
def test_the_small_size_is_the_same_for_all_three(config):
  made, other = config.get_config("squad_parts,small,mlp"), squad_cross_vae.get_config("small")
  check(made)
  assert (made.model.decoder, made.data.name) == ("mlp", "squad_parts")
  assert made.loss.epochs == made.epochs == 12 and made.loss == other.loss
  assert made.model.answer_length == made.data.max_length == made.batch.row_lengths[0]
  assert {k: v for k, v in made.model.items() if k not in ("crossing", "decoder")} == {
    k: v for k, v in other.model.items() if k not in ("crossing", "decoder")
  }


assert WORDS > WIDTH  # so that a table's axes are not taken for each other
