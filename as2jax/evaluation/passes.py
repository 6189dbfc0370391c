"""The passes that prediction makes over a table: where rows are long, short texts get short rows.

In a packed row each token attends over the whole row, other texts' tokens masked. In rows of 512, into
which published rerankers' texts may grow, a pair of 40 tokens so costs half as much again on a CPU
as in rows of `SHORT`.
"""

import dataclasses
from typing import Any

import numpy as np

from as2jax.data.batches.batcher import Batcher, Plan
from as2jax.evaluation.request_sizes import smallest

SHORT = 128  # tokens of a short row
BATCHES = (
  4  # of short texts in a split, from which another program and a last batch more are worth it
)


def short_rows(batcher: Batcher) -> Batcher | None:
  """Batches of as many tokens in rows of `SHORT`; None where rows hold one text or are not longer."""
  limits = batcher.sampler.limits
  times, left = divmod(limits.row_length, SHORT)
  if not limits.packed or times < 2 or left:
    return None
  shorter = dataclasses.replace(limits, rows=limits.rows * times, row_length=SHORT)
  return dataclasses.replace(
    batcher,
    sampler=dataclasses.replace(batcher.sampler, limits=shorter),
    rows=(shorter.rows,),
    row_lengths=(SHORT,),
  )


def passes(batcher: Batcher, *, apart: bool, request: bool) -> list[tuple[Batcher, Plan]]:
  """Batchers and their plans, which together hold each example once.

  Args:
    batcher: of all examples.
    apart: whether short texts may have rows of their own.
    request: whether the questions are a request, whose programs are all compiled beforehand: one
      batch of short texts is enough then, and the others' batch shrinks to what it holds.

  """
  blocks = batcher.sampler.blocks()
  whole = [(batcher, batcher.plan(blocks, 0, 0))]
  short = short_rows(batcher) if apart else None
  if short is None or not len(blocks):
    return whole
  alone: Any = np.concatenate(blocks)  # prediction's blocks are of one example
  members, lengths = batcher.examples.members[alone], batcher.sampler.lengths
  is_short = np.where(members >= 0, lengths[members], 0).max(axis=1) <= SHORT
  units = np.unique(members[is_short])
  limits = batcher.sampler.limits
  batch = limits.rows * limits.row_length * batcher.shards
  if lengths[units[units >= 0]].sum() < batch * (1 if request else BATCHES):
    return whole
  few, many = alone[~is_short, None], alone[is_short, None]
  parts = [(short, many)]
  if len(few):
    parts.append((smallest(batcher, few) if request else batcher, few))
  return [(its, its.plan(examples, 0, 0)) for its, examples in parts]
