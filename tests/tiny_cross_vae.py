"""A small Cross-VAE and batches of random words: what its tests share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from step_batches import batcher_of, table_of

from as2jax.data.batches import examples as layouts
from as2jax.data.record import Candidate, Question
from as2jax.data.text.input_templates import ROLES
from as2jax.encoders.static import StaticEncoder
from as2jax.models.cross_vae import CrossVAE
from as2jax.models.cross_vae_loss import CrossVAELoss
from configs import squad_cross_vae

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
def model(crossing="cross", **changes):
  fields = {k: v for k, v in squad_cross_vae.get_config().model.to_dict().items() if k != "name"}
  fields |= {"crossing": crossing, **SMALL, **changes}
  return CrossVAE(StaticEncoder(WORDS, WIDTH, 0.0), **fields)


def loss(**changes):
  fields = squad_cross_vae.get_config().loss.to_dict()
  return CrossVAELoss(**{k: v for k, v in {**fields, **changes}.items() if k != "name"})


@functools.cache
def content(n=8, negatives=0):
  """Questions with one answer each, of which two are shared by two, and random words.

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
    for i in range(n)
  )
  texts, table = layouts.pairs(questions)
  asked = np.asarray([text.startswith("question") for (text,) in texts])
  counts = [int(rng.integers(3, 9 if q else 12)) for q in asked]
  offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
  ids = rng.integers(4, WORDS, offsets[-1]).astype(np.int32)
  ids[offsets[:-1]], ids[offsets[1:] - 1] = MARKS
  role = np.where(np.repeat(asked, counts), ROLES["question"], ROLES["candidate"])
  return table_of(ids, offsets, role), table


@functools.cache
def batcher(n=8, negatives=0, *, packed=False, examples=8, shards=1, sampler="ordered", length=12):
  units, table = content(n, negatives)
  how = {"sampler": sampler, "examples": examples, "packed": packed, "shards": shards}
  return batcher_of(units, table, length, **how)


def batch(seed=0, step=0, **settings):
  """A micro-batch `[shard, …]`."""
  b = batcher(**settings)
  plan = b.plan(b.sampler.blocks(), seed, 0)
  return jax.tree.map(lambda x: jnp.asarray(x[0]), b.batch(plan, step))


def params(net, seed=0):
  """Random values for everything, so that no term vanishes."""
  rng = np.random.default_rng(seed)
  return jax.tree.map(lambda x: jnp.asarray(rng.normal(0, 0.4, x.shape), jnp.float32), _shapes(net))


@functools.cache
def _shapes(net):
  """They do not depend on the batch; tracing takes a second."""
  return jax.eval_shape(lambda: net.init(jax.random.key(0), batch(), train=False))["params"]


def run(net, values, example_batch, *, train=False, key=0):
  """The output, compiled."""
  return _run(net, train)(values, example_batch, jax.random.key(key))


@functools.cache
def _run(net, train):
  return jax.jit(
    lambda values, example_batch, key: net.apply(
      {"params": values}, example_batch, train=train, rngs={"dropout": key} if train else None
    )
  )
