"""Which examples meet in a step: a pure function of (seed, epoch, token lengths)."""

import collections
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from as2jax.data.batches.examples import ExampleTable
from as2jax.runtime.errors import InputError


def pack(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray, int]:
  """Pack units into as few rows as best-fit decreasing finds (at most 11/9 of the optimum + 1).
  `lengths` `[n]` lie between 1 and `row_length`. Returns the row of each unit `[n]`, its first
  position there `[n]`, and the number of rows: a pure function, in which ties keep the order given.
  """
  lengths = np.asarray(lengths)
  needs, row, start = lengths.tolist(), [0] * len(lengths), [0] * len(lengths)
  by_free: list[list[int]] = [[] for _ in range(row_length + 1)]
  occupied = 0  # bit f is set where some row has exactly f free tokens: best fit is one bit scan
  used = 0
  for i in np.argsort(-lengths, kind="stable").tolist():
    need = needs[i]
    if not 1 <= need <= row_length:
      raise ValueError(f"unit {i} has {need} tokens; a row holds 1 to {row_length}")
    fitting = occupied >> need
    if fitting:
      free = need + (fitting & -fitting).bit_length() - 1
      r = by_free[free].pop()
      if not by_free[free]:
        occupied &= ~(1 << free)
    else:
      r, free, used = used, row_length, used + 1
    row[i], start[i] = r, row_length - free
    by_free[free - need].append(r)
    occupied |= 1 << (free - need)
  return np.array(row, np.int32), np.array(start, np.int32), used


WINDOW = 24  # blocks looked at ahead to fill a shard's last tokens
WHOLE_QUESTIONS = ("grouped", "shared")  # samplers that keep a question's examples together
TRAINING = ("paper", *WHOLE_QUESTIONS)  # those of batches to train on


@dataclasses.dataclass(frozen=True)
class Limits:
  """Holds what one shard of a batch may hold; `rows_key` names the key of its rows in messages."""

  examples: int
  units: int
  rows: int
  row_length: int
  packed: bool = True
  rows_key: str = "batch.rows"

  def hold(self, units: int, tokens: int) -> bool:
    """Tell whether so many units and tokens may fit into a shard."""
    most = self.units if self.packed else min(self.units, self.rows)
    return units <= most and tokens <= self.rows * self.row_length


@dataclasses.dataclass(frozen=True)
class Shard:
  """Holds the content of one shard: examples by number, and its distinct units placed in rows."""

  examples: np.ndarray
  units: np.ndarray
  row: np.ndarray
  start: np.ndarray
  rows: int


def beside_those_who_share(
  blocks: Sequence[np.ndarray], members: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
  """Return a random order of the blocks in which those with units in common tend to be neighbours.
  Of the units that several blocks hold, each block is filed under the one that a random ranking of
  all units has first (MinHash, Broder 1997): blocks that share all such units always meet, others
  with the Jaccard similarity of these units as probability. `members` are the units of examples.
  """
  sizes = [len(block) * members.shape[1] for block in blocks]
  pairs = np.stack(
    [np.repeat(np.arange(len(blocks)), sizes), members[np.concatenate(blocks)].ravel()]
  )
  block, unit = np.unique(pairs, axis=1)
  several = np.bincount(unit)[unit] > 1
  units = int(unit.max()) + 1
  file = units + np.arange(len(blocks))  # one that shares nothing is alone
  np.minimum.at(file, block[several], rng.permutation(units)[unit[several]])
  _, file = np.unique(file, return_inverse=True)
  return np.lexsort((rng.permutation(len(blocks)), rng.permutation(len(blocks))[file]))


@dataclasses.dataclass(frozen=True)
class Sampler:
  """Plans epochs.

  `paper`: examples shuffled one by one, `limits.examples` of them a shard: the papers' batches.
  `grouped`: whole questions shuffled, as many a shard as its rows hold: each sentence is encoded
  once for all the examples in which it occurs.
  `shared`: the same, and questions with candidates in common meet in a shard where they can: SQuAD's
  of one paragraph, whose sentences are then encoded once for all of them.
  `ordered`: examples in the order given, for packed prediction.
  `by_length`: examples by their longest unit, for prediction with one unit a row.
  """

  name: str
  table: ExampleTable
  lengths: np.ndarray
  limits: Limits

  def blocks(self) -> Sequence[np.ndarray]:
    """Return the numbers of the examples, in blocks that stay together in every epoch.

    A question too large for a shard is cut into several blocks.
    """
    if self.name in ("paper", "ordered", "by_length"):
      return np.arange(len(self.table), dtype=np.int32)[:, None]
    if self.name not in WHOLE_QUESTIONS:
      raise InputError(
        f"batch.sampler = {self.name!r} is not known; use one of {', '.join(TRAINING)}"
      )
    if not len(self.table):
      return []
    blocks: list[np.ndarray] = []
    edges = np.flatnonzero(np.diff(self.table.question)) + 1
    for examples in np.split(np.arange(len(self.table)), edges):
      if len(examples) <= self.limits.examples and self._shard(examples):
        blocks.append(examples)
      else:
        blocks += self._cut(examples)
    return blocks

  def epoch(self, blocks: Sequence[np.ndarray], seed: int, epoch: int) -> Iterator[Shard]:
    """Return the shards of one epoch, in order and one at a time: every example exactly once."""
    order = np.arange(len(blocks), dtype=np.int32)
    if self.name == "by_length":
      order = np.argsort(self.lengths[self.table.members].max(axis=1), kind="stable")
    elif self.name == "shared" and len(blocks):
      rng = np.random.default_rng((seed, epoch))
      order = beside_those_who_share(blocks, self.table.members, rng)
    elif self.name != "ordered":
      order = np.random.default_rng((seed, epoch)).permutation(order)
    return self._fill(blocks, order)

  def _cut(self, examples: np.ndarray) -> list[np.ndarray]:
    """Cut a run of examples greedily wherever the next one would not fit any more."""
    limits, blocks, current, units, tokens = self.limits, [], [], set(), 0
    # Half of the tokens of a shard: two tiles of large questions then share one.
    budget = max(limits.rows * limits.row_length // 2, limits.row_length)
    for e in examples.tolist():
      own = set(self._units_of(np.asarray([e])).tolist())
      cost = int(self.lengths[list(own - units)].sum())
      full = len(current) >= limits.examples or len(units | own) > limits.units
      if current and (full or tokens + cost > budget):
        blocks.append(np.asarray(current))
        current, units, tokens = [], set(), 0
        cost = int(self.lengths[list(own)].sum())
      current.append(e)
      units |= own
      tokens += cost
    return [*blocks, np.asarray(current)]

  def _fill(self, blocks: Sequence[np.ndarray], order: np.ndarray) -> Iterator[Shard]:
    """Fill shards with whole blocks in (nearly) the given order, each block exactly once.

    A block that does not fit waits, at most `WINDOW` of them at a time, for the next shard: so a
    shard never exceeds its limits, and no shape beyond the planned ones is ever needed.
    """
    limits = self.limits
    single = isinstance(blocks, np.ndarray)  # blocks of one example each, `[examples, 1]`
    pending: collections.deque[int] = collections.deque()  # what waits, before the rest of `order`
    at = 0
    while pending or at < len(order):
      if single and not pending:  # the next examples often fit as they are
        shard = self._shard(blocks[order[at : at + limits.examples], 0])
        if shard is not None:
          at += len(shard.examples)
          yield shard
          continue
      taken, waiting, units, examples, tokens = [], [], set(), 0, 0
      while len(waiting) < WINDOW and examples < limits.examples:
        if pending:
          b = pending.popleft()
        elif at < len(order):
          b, at = int(order[at]), at + 1
        else:
          break
        new = [u for u in self._units_of(blocks[b]).tolist() if u not in units]
        cost = sum(int(self.lengths[u]) for u in new)
        count = examples + len(blocks[b])
        if count > limits.examples or not limits.hold(len(units) + len(new), tokens + cost):
          waiting.append(b)
          continue
        taken.append(b)
        units.update(new)
        examples, tokens = count, tokens + cost
      shard = None
      while shard is None:
        if not taken:
          raise self._too_large(blocks[waiting[0]])
        shard = self._shard(np.concatenate([blocks[b] for b in taken]))
        if shard is None:  # the last block taken is tried again in the next shard
          waiting.insert(0, taken.pop())
      pending.extendleft(reversed(waiting))
      yield shard

  def _units_of(self, examples: np.ndarray) -> np.ndarray:
    """Return the distinct units of examples, in the order of first sight."""
    return np.fromiter(dict.fromkeys(self.table.members[examples].ravel().tolist()), np.int32)

  def _shard(self, examples: np.ndarray) -> Shard | None:
    """Return the shard of just these examples; None where they do not fit."""
    limits, units = self.limits, self._units_of(examples)
    lengths = self.lengths[units]
    if not limits.hold(len(units), int(lengths.sum())):
      return None
    rows = len(units)
    row, start = np.arange(rows, dtype=np.int32), np.zeros(rows, np.int32)
    if limits.packed:
      row, start, rows = pack(lengths, limits.row_length)
    return (
      Shard(examples.astype(np.int32), units, row, start, rows) if rows <= limits.rows else None
    )

  def _too_large(self, block: np.ndarray) -> InputError:
    limits, units = self.limits, self._units_of(block)
    return InputError(
      f"{limits.rows_key}: {len(block)} examples that belong together have {len(units)} texts of "
      f"{int(self.lengths[units].sum())} tokens, and a shard ({limits.rows_key} / batch.shards) holds "
      f"{limits.rows} rows of {limits.row_length} tokens, {limits.units} texts and {limits.examples} "
      f"examples: raise {limits.rows_key}, or lower batch.shards or data.max_length"
    )
