"""A small CASSIE, and batches of random units with words: what its tests share."""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tiny
from flax import linen as nn

from as2jax.data.batches.batch import Batch, Examples, Words
from as2jax.encoders.bert import BertEncoder
from as2jax.encoders.xlnet import XLNetEncoder
from as2jax.models.cassie import Cassie, CassieLoss
from configs import wikiqa_cassie

FIELDS = {
  **wikiqa_cassie.get_config().model.to_dict(),
  "token": "cls",
  "iterations": 20,
  "question_words": 5,
  "sentence_words": 6,
  "hidden": 7,
}
del FIELDS["name"]
LOSS = CassieLoss(gamma=0.3, mi_self_pairs=True)
VOCABULARY = 40

SIZES = {
  "vocab_size": VOCABULARY,
  "hidden_size": 8,
  "num_layers": 1,
  "num_heads": 2,
  "intermediate_size": 12,
  "hidden_dropout": 0.0,
  "attention_dropout": 0.0,
}


def encoder(**fields):
  return BertEncoder(**{**SIZES, "max_positions": 64, **fields})


def xlnet(**sizes):
  return XLNetEncoder(
    **{**SIZES, **sizes},
    attention_type="bi",
    clamp_len=-1,
    layer_norm_eps=1e-12,
    activation="gelu",
    dtype="float32",
    precision=None,
    unroll=0,
    remat=False,
  )


class Lookup(nn.Module):
  """A table of tokens behind the encoder contract: compiles in a moment, sees no other token."""

  hidden_size: int

  @nn.compact
  def __call__(self, tokens, *, input_offset=None, train):
    table = self.param("word", nn.initializers.normal(1.0), (VOCABULARY, self.hidden_size))
    return table[tokens.ids] if input_offset is None else table[tokens.ids] + input_offset


@functools.cache
def model(**changes):
  """Over the small BERT."""
  return Cassie(**{"encoder": encoder(), **FIELDS, **changes})


def quick(**changes):
  """Over `Lookup`, for what does not depend on the encoder."""
  return model(encoder=Lookup(8), **changes)


class Case(NamedTuple):
  """One unit: [CLS] question [SEP] sentence [SEP] …, its words and the labels of its sentences."""

  ids: np.ndarray
  type: np.ndarray
  role: np.ndarray
  word_start: np.ndarray
  word_length: np.ndarray
  word_role: np.ndarray
  frequency: np.ndarray
  keep: np.ndarray
  labels: tuple[int, ...]


def case(seed, counts=(3, 4, 2, 3), labels=(1, 0, -1)) -> Case:
  """Random words of one to three pieces, `counts[role]` of each role; a third is not kept."""
  rng = np.random.default_rng(seed)
  roles, start, length, word_role = [0], [], [], []
  for role, count in enumerate(counts):
    for _ in range(count):
      pieces = int(rng.integers(1, 4))
      start.append(len(roles))
      length.append(pieces)
      word_role.append(role)
      roles += [role] * pieces
    roles.append(role)
  keep = np.ones(len(start))
  for role in set(word_role):
    mine = np.flatnonzero(np.asarray(word_role) == role)
    keep[mine[1:]] = rng.random(len(mine) - 1) > 0.3
  n = len(roles)
  return Case(
    rng.integers(1, VOCABULARY, n),
    np.minimum(roles, 1),
    np.asarray(roles),
    np.asarray(start, int),
    np.asarray(length, int),
    np.asarray(word_role, int),
    rng.integers(1, 30, len(start)),
    keep,
    labels,
  )


def batch(*shards, length=64, spare=0, least=(0, 0, 0)) -> Batch:
  """`shards`: of each the rows, of each the cases; an example a case, `spare` slots of each kind.

  `least`: rows, slots of units and slots of words at least, so that batches have one shape.
  """
  from tiny_transformers import lay  # which imports this module

  flat = [[c for row in rows for c in row] for rows in shards]
  rows = max(least[0], max(map(len, shards)) + spare)
  most = max(map(len, flat))
  slots = max(least[1], most + spare)
  words = max(least[2], max(sum(len(c.keep) for c in s) for s in flat) + spare)
  numbers, places, cases = itertools.count(), [], sum(flat, [])
  for shard in shards:
    places += [[next(numbers) for _ in row] for row in shard] + [[]] * (rows - len(shard))

  def laid(field):
    sequences, types = [getattr(c, field) for c in cases], [c.type for c in cases]
    split = {"shards": len(shards), "unused": slots - most}
    return lay(sequences, places, length, **split, types=types)

  tokens, units = laid("ids")
  k = len(cases[0].labels)
  many = lambda shape, names, fill=0: {n: np.full((len(shards), *shape), fill) for n in names}
  spans = many((words,), ("unit", "start", "length", "role", "form"))
  inputs = many((words,), ("document_frequency", "stop_words"), 0.0)
  examples = many((slots, 1), ("members",)) | many((slots, k), ("labels",), -1)
  examples |= many((slots,), ("mask",), 0.0) | many((slots,), ("question", "answer"), -1)
  for s, contents in enumerate(flat):
    word = 0
    for unit, c in enumerate(contents):
      where = slice(word, word := word + len(c.keep))
      for name, value in (
        ("unit", unit),
        ("start", c.word_start),
        ("length", c.word_length),
        ("role", c.word_role),
      ):
        spans[name][s, where] = value
      inputs["document_frequency"][s, where] = c.frequency
      inputs["stop_words"][s, where] = c.keep == 0
      examples["labels"][s, unit], examples["mask"][s, unit] = c.labels, 1
      for name in ("members", "question", "answer"):
        examples[name][s, unit] = unit

  def arrays(fields):
    return {
      k: jnp.asarray(v, jnp.float32 if v.dtype == float else jnp.int32) for k, v in fields.items()
    }

  return Batch(
    tokens.replace(role=laid("role")[0].ids),
    units,
    Examples(**arrays(examples)),
    Words(**arrays(spans), inputs=arrays(inputs)),
  )


@functools.cache
def variables(net, k=3):
  return tiny.random_variables(net, batch([[case(0, (2,) * (k + 1), (1,) * k)]]))


@functools.partial(jax.jit, static_argnums=0, static_argnames=("train", "method"))
def apply(net, values, example_batch, *, train=False, method=None, key=None):
  arguments = {} if method else {"train": train}
  rngs = {} if key is None else {"dropout": key}
  return net.apply(values, example_batch, method=method, rngs=rngs, **arguments)


def total(net, values, example_batch):
  """The loss as the step adds it up."""
  terms = LOSS(net.apply(values, example_batch, train=True), example_batch, jnp.float32(0))
  return sum(
    t.scale
    * jnp.sum(jnp.where(t.weights > 0, t.values, 0) * t.weights)
    / jnp.maximum(t.weights.sum(), 1)
    for t in terms.values()
    if t.scale
  )


@functools.partial(jax.jit, static_argnums=0)
def gradient(net, values, example_batch):
  return jax.value_and_grad(lambda v: total(net, v, example_batch))(values)


def run_config(*names, **changes):
  """A small form of a preset (and of what follows it) on a part of the sample."""
  job_config = tiny.config(names[0])
  with job_config.unlocked():
    job_config.seeds, job_config.data.train_fraction, job_config.data.max_length = (0,), 0.1, 128
    job_config.batch.row_lengths, job_config.batch.predict_rows = (128,), 32
    job_config.batch.examples, job_config.optimizer.rate = 8, 1e-3
    if names[0] == "cassie":
      job_config.model.update({"iterations": 10, "hidden": 8})
    if "joint" in names:
      job_config.model.template, job_config.data.ranking_size = "joint", 3
    for key, value in changes.items():
      job_config.update_from_flattened_dict({key.replace("__", "."): value})
  return job_config
