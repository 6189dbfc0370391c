"""Token sequences laid into rows by hand, for the encoder tests."""

import jax.numpy as jnp
import numpy as np

from as2jax.data.batches.batch import Tokens, Units


def lay(sequences, rows, length, *, shards=1, unused=0, types=None):
  """`rows` lists, for each row of each shard in turn, the numbers of the sequences packed into it.

  Units come in the order of `rows`, `unused` empty slots after them.
  """
  per_shard = len(rows) // shards
  ids, segment, position, type = np.zeros((4, shards, per_shard, length), np.int32)
  units = [[] for _ in range(shards)]
  for place, members in enumerate(rows):
    shard, row = divmod(place, per_shard)
    start = 0
    for number, member in enumerate(members):
      size = len(sequences[member])
      span = (shard, row, slice(start, start + size))
      ids[span], segment[span], position[span] = sequences[member], number + 1, np.arange(size)
      if types is not None:
        type[span] = types[member]
      units[shard].append((row, start, size, member))
      start += size
  slots = max(map(len, units)) + unused
  table = np.array([u + [(0, 0, 0, -1)] * (slots - len(u)) for u in units], np.int32)
  tokens = Tokens(*map(jnp.asarray, (ids, segment, position, type, np.zeros_like(ids))))
  return tokens, Units(*(jnp.asarray(table[..., i]) for i in range(4)))


def vectors(hidden, units):
  """{number of the sequence: its token vectors}."""
  by_number = {}
  for shard in range(units.id.shape[0]):
    for row, start, size, member in np.stack(
      [units.row[shard], units.start[shard], units.length[shard], units.id[shard]], axis=1
    ):
      if size:
        by_number[int(member)] = np.asarray(hidden[shard, row, start : start + size])
  return by_number
