"""The sizes of a request's batch: it computes little more than what the request holds."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from as2jax.data.batches.batcher import Batcher

SHRINK = 2  # a request that fits into a half, a quarter … of a batch's tokens is given no more
FINE = 4096  # tokens a shard below which requests have more sizes to choose from
SHORTEST = 32  # tokens of the shortest row


def sizes(batcher: Batcher) -> list[Batcher]:
  """Batchers of the same tables whose batches have all the tokens, half of them, a quarter …

  Below `FINE` tokens a shard there are three quarters of each, too. Below one row, rows are shorter:
  such a batcher takes only texts that fit. The smallest still holds one example, each of whose units
  may fill a row.
  """
  batchers, limits = [batcher], batcher.sampler.limits
  least = batcher.examples.members.shape[1]
  whole = limits.rows * limits.row_length
  tokens = whole // SHRINK
  while tokens >= SHORTEST:
    for size in (tokens * 3 // 2, tokens) if tokens * 3 // 2 < FINE else (tokens,):
      length = limits.row_length
      while limits.packed and size % length and length % 2 == 0 and length > SHORTEST:
        length //= 2
      counts = {"rows": size, "units": limits.units * size, "examples": limits.examples * size}
      over = {"rows": length, "units": whole, "examples": whole}
      if any(counts[k] % over[k] or counts[k] // over[k] < least for k in counts):
        continue
      smaller = dataclasses.replace(
        limits, row_length=length, **{k: counts[k] // over[k] for k in counts}
      )
      batchers.append(
        dataclasses.replace(
          batcher,
          sampler=dataclasses.replace(batcher.sampler, limits=smaller),
          rows=(smaller.rows,),
          row_lengths=(length,) if limits.packed else batcher.row_lengths,
          words=batcher.words * size // whole,
        )
      )
    tokens //= SHRINK
  return batchers


def smallest(batcher: Batcher, blocks: Sequence[np.ndarray] | None = None) -> Batcher:
  """Of `sizes`, the smallest that holds everything in one batch; `batcher` itself where none does.

  Args:
    batcher: of all examples.
    blocks: the examples to be held, as the sampler has them; all where None.

  """
  lengths = batcher.sampler.lengths
  if blocks is None:
    blocks = batcher.sampler.blocks()
  else:
    units = np.unique(batcher.examples.members[np.concatenate(blocks)])
    lengths = lengths[units[units >= 0]]
  for smaller in reversed(sizes(batcher)):
    limits = smaller.sampler.limits
    if lengths.max(initial=0) > limits.row_length:
      continue
    if limits.packed and lengths.sum() > limits.rows * limits.row_length * smaller.shards:
      continue
    if len(smaller.plan(blocks, 0, 0)) <= 1:
      return smaller
  return batcher
