"""Batches of a dozen made questions, for tests of the train step."""

import functools

import numpy as np
import tiny

from as2jax.data.batches import examples as layouts
from as2jax.data.batches.batcher import fit_batcher, stack
from as2jax.data.record import Candidate, Question
from as2jax.data.text.tokenise import build_units
from as2jax.data.text.tokenizer import load_tokenizer

WORDS = "the cat sat on a mat while two dogs ran home at noon".split()


@functools.cache
def questions(n=12):
  rng = np.random.default_rng(0)
  text = lambda k: " ".join(rng.choice(WORDS, k))
  return tuple(
    Question(
      f"Q{i}",
      text(4) + f" {i}",
      tuple(
        Candidate(f"D{i}-{j}", text(int(rng.integers(3, 9))) + f" {i} {j}", int(j % 3 == 0))
        for j in range(4)
      ),
    )
    for i in range(n)
  )


@functools.cache
def batcher(layout="pairs", shards=1, accumulate=1, examples=16, count=12):
  units, table = layouts.LAYOUTS[layout](questions(count))
  template = "pair" if layout == "single" else "single"
  built = build_units(
    units, load_tokenizer(tiny.encoder_folder()), template=template, max_length=32
  )
  return fit_batcher(
    built,
    table,
    sampler="paper",
    examples_per_batch=examples,
    rows=0,
    row_lengths=(32,),
    packed=True,
    shards=shards,
    accumulate=accumulate,
    buckets=1,
  )


def batch(seeds=(0,), step=0, **settings):
  b = batcher(**settings)
  plans = [b.plan(b.sampler.blocks(), seed, 0) for seed in seeds]
  return stack([b.batch(p, step) for p in plans])
