"""Batches of a dozen made questions, a state and a step, for tests of the train step."""

import dataclasses
import functools

import jax
import numpy as np
import tiny

from as2jax.data.batches import examples as layouts
from as2jax.data.batches.batcher import Column, fit_batcher, stack
from as2jax.data.inputs.document_position import DocumentPosition
from as2jax.data.inputs.protocol import Tables
from as2jax.data.record import Candidate, Question
from as2jax.data.text.tokenise import UnitTable, build_units
from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.runtime import sharding
from as2jax.training import optimizers
from as2jax.training import state as states
from as2jax.training.step import make_train_step

WORDS = "the cat sat on a mat while two dogs ran home at noon".split()


@functools.cache
def questions(n=12):
  rng = np.random.default_rng(0)
  text = lambda k: " ".join(rng.choice(WORDS, k))
  return tuple(
    Question(
      f"Q{i}",
      text(4) + f" {i}",
      document(i, [text(int(rng.integers(3, 9))) + f" {i} {j}" for j in range(4)]),
    )
    for i in range(n)
  )


def document(i, sentences):
  """Candidates that are the sentences of a document, of which each third is right."""
  return tuple(
    Candidate(f"D{i}-{j}", text, int(j % 3 == 0), previous=sentences[j - 1] if j else "")
    for j, text in enumerate(sentences)
  )


def table_of(ids, offsets, role) -> UnitTable:
  """Units of tokens without words."""
  table = UnitTable.of_lengths(np.diff(offsets), ids)
  return dataclasses.replace(table, role=role.astype(np.int8))


def batcher_of(units, table, length, *, sampler, examples, packed, shards, **more):
  """The batcher of such units, in rows of one length."""
  return fit_batcher(
    units,
    table,
    sampler=sampler,
    examples_per_batch=examples,
    rows=0,
    row_lengths=(length,),
    packed=packed,
    shards=shards,
    **{"accumulate": 1, "buckets": 1, **more},
  )


@functools.cache
def batcher(layout="pairs", shards=1, accumulate=1, examples=16, count=12, sampler="paper"):
  units, table = layouts.LAYOUTS[layout](questions(count))
  template = "pair" if layout == "single" else "single"
  tokenizer, inputs = load_tokenizer(tiny.encoder_folder()), {}
  built = build_units(units, tokenizer, template=template, max_length=32)
  if layout == "single":
    tables = Tables(built, table, tokenizer)
    places = DocumentPosition().columns(None, questions(count), tables)
    inputs[DocumentPosition.name] = Column("example", places)
  how = {"sampler": sampler, "examples": examples, "packed": True, "shards": shards}
  return batcher_of(built, table, 32, **how, accumulate=accumulate, inputs=inputs)


def batch(seeds=(0,), step=0, **settings):
  b = batcher(**settings)
  plans = [b.plan(b.sampler.blocks(), seed, 0) for seed in seeds]
  return stack([b.batch(p, step) for p in plans])


def make(  # mesh, state and step
  model, loss, first, *, seeds=(0,), lr_multipliers=(), devices=1, clip=1.0, rate=1e-3, name="adam"
):
  mesh = sharding.make_mesh(devices=jax.devices()[:devices])
  moments = {"b1": 0.9, "b2": 0.999, "eps": 1e-8}
  plain = {"weight_decay": 0.0, "layer_decay": 1.0, "lr_multipliers": ()}
  optimizer = optimizers.from_config({"name": name, **moments, "clip_norm": clip, **plain})
  micro = jax.tree.map(lambda x: x[0, 0], first)
  state = states.create(
    model,
    micro,
    seeds=seeds,
    pretrained={},
    lr_multipliers=lr_multipliers,
    optimizer=optimizer,
    mesh=mesh,
  )
  schedule = optimizers.schedule("constant", rate=rate, warmup=0.0, epochs=1)
  step = make_train_step(model, loss, optimizer, schedule, mesh=mesh, state=state, seeds=len(seeds))
  return mesh, state, step


def run(step, mesh, state, example_batch, seeds=(0,), progress=0.5, active=None):
  n = len(seeds)
  return step(
    state,
    sharding.place(example_batch, mesh),
    np.asarray(seeds, np.uint32),
    np.full(n, progress, np.float32),
    np.ones(n, bool) if active is None else active,
  )
