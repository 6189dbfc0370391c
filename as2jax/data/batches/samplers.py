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
  n = len(lengths)
  row, start = np.zeros(n, np.int32), np.zeros(n, np.int32)
  by_free: list[list[int]] = [[] for _ in range(row_length + 1)]
  occupied = 0  # bit f is set where some row has exactly f free tokens: best fit is one bit scan
  used = 0
  for i in np.argsort(-np.asarray(lengths), kind="stable").tolist():
    need = int(lengths[i])
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
  return row, start, used


def pack_alike(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Return what `pack` gives for each of several sets `[sets, n]` of units, all sets at once."""
  sets, n = lengths.shape
  row, start = np.zeros((sets, n), np.int32), np.zeros((sets, n), np.int32)
  order = np.argsort(-lengths, axis=1, kind="stable")
  needs = np.take_along_axis(lengths, order, 1)
  # Two rows hold more than one can, so that no more are opened than this.
  rows = 2 * int(lengths.sum(axis=1).max(initial=0)) // row_length + 2
  # The least key among the rows with room is that of the least room, of these that of the row which
  # was used last, of rows that are not open that of the first; it says which row that is.
  room, every = rows * (n + 2), np.arange(sets)
  keys = np.broadcast_to(row_length * room + np.arange(rows)[:, None], (rows, sets)).copy()
  for turn in range(n):
    need = needs[:, turn]
    key = np.where(keys >= (need - 1) * room + rows, keys, (row_length + 1) * room).min(axis=0)
    chosen, free = key % rows, -(-(key // rows * rows) // room)
    keys[chosen, every] = (free - need) * room - (turn + 1) * rows + chosen
    row[every, order[:, turn]] = chosen
    start[every, order[:, turn]] = row_length - free
  return row, start, row.max(axis=1, initial=-1) + 1


WINDOW = 24  # blocks looked at ahead to fill a shard's last tokens
AHEAD = 256  # shards packed at once, at most
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

  def place(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return row, first position and number of rows of units; unpacked, each has its own row."""
    if self.packed:
      return pack(lengths, self.row_length)
    n = len(lengths)
    return np.arange(n, dtype=np.int32), np.zeros(n, np.int32), n

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
  with the Jaccard similarity of these units as probability. `members` are the units of each
  example, -1 where there is none.
  """
  sizes = [len(block) * members.shape[1] for block in blocks]
  pairs = np.stack(
    [np.repeat(np.arange(len(blocks)), sizes), members[np.concatenate(blocks)].ravel()]
  )
  block, unit = np.unique(pairs[:, pairs[1] >= 0], axis=1)
  several = np.bincount(unit)[unit] > 1
  units = int(unit.max()) + 1
  file = units + np.arange(len(blocks))  # one that shares nothing is alone
  np.minimum.at(file, block[several], rng.permutation(units)[unit[several]])
  _, file = np.unique(file, return_inverse=True)
  return np.lexsort((rng.permutation(len(blocks)), rng.permutation(len(blocks))[file]))


class _OpenShard:
  """Holds a shard that is being filled."""

  def __init__(self, lengths: np.ndarray, limits: Limits):
    self.lengths, self.limits = lengths, limits
    self.blocks: list[tuple[np.ndarray, list[int]]] = []
    self.units: dict[int, None] = {}
    self.tokens = self.examples = 0

  def try_add(self, examples: np.ndarray, units: Sequence[int]) -> bool:
    new = [u for u in units if u not in self.units]
    tokens = self.tokens + sum(int(self.lengths[u]) for u in new)
    count = self.examples + len(examples)
    if count > self.limits.examples or not self.limits.hold(len(self.units) + len(new), tokens):
      return False
    self.blocks.append((examples, new))
    self.units.update(dict.fromkeys(new))
    self.tokens, self.examples = tokens, count
    return True

  def drop_last(self) -> None:
    examples, new = self.blocks.pop()
    for u in new:
      del self.units[u]
    self.tokens -= sum(int(self.lengths[u]) for u in new)
    self.examples -= len(examples)

  def close(self) -> Shard | None:
    """Return the finished shard, or None where its units do not pack into its rows."""
    units = np.fromiter(self.units, np.int32, len(self.units))
    row, start, rows = self.limits.place(self.lengths[units])
    if rows > self.limits.rows:
      return None
    return Shard(np.concatenate([e for e, _ in self.blocks]), units, row, start, rows)


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
      return np.arange(len(self.table))[:, None]
    if self.name not in WHOLE_QUESTIONS:
      raise InputError(
        f"batch.sampler = {self.name!r} is not known; use one of {', '.join(TRAINING)}"
      )
    if not len(self.table):
      return []
    blocks: list[np.ndarray] = []
    edges = np.flatnonzero(np.diff(self.table.question)) + 1
    for examples in np.split(np.arange(len(self.table)), edges):
      if len(examples) <= self.limits.examples and self._at_once(examples):
        blocks.append(examples)
      else:
        blocks += self._cut(examples)
    return blocks

  def epoch(self, blocks: Sequence[np.ndarray], seed: int, epoch: int) -> Iterator[Shard]:
    """Return the shards of one epoch, in order and one at a time: every example exactly once."""
    order = np.arange(len(blocks))
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
    blocks, current, units, tokens = [], [], set(), 0
    # Half of the tokens of a shard: two tiles of large questions then share one.
    limits = self.limits
    budget = max(limits.rows * limits.row_length // 2, limits.row_length)
    for e in examples.tolist():
      own = set(self._units_of(np.asarray([e])))
      cost = sum(int(self.lengths[u]) for u in own - units)
      full = len(current) >= limits.examples or len(units | own) > limits.units
      if current and (full or tokens + cost > budget):
        blocks.append(np.asarray(current))
        current, units, tokens = [], set(), 0
        cost = sum(int(self.lengths[u]) for u in own)
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
    at, ahead = 0, 1
    while pending or at < len(order):
      if single and not pending:
        chosen = blocks[order[at : at + ahead * limits.examples], 0]
        if whole := self._several(chosen):
          at, ahead = at + sum(len(s.examples) for s in whole), min(4 * ahead, AHEAD)
          yield from whole
          continue
        ahead = 1
      shard, waiting, taken = _OpenShard(self.lengths, limits), [], []
      while len(waiting) < WINDOW and shard.examples < limits.examples:
        if pending:
          b = pending.popleft()
        elif at < len(order):
          b, at = int(order[at]), at + 1
        else:
          break
        if shard.try_add(blocks[b], self._units_of(blocks[b])):
          taken.append(b)
        else:
          waiting.append(b)
      while (done := shard.close() if taken else None) is None:
        if len(taken) <= 1:
          raise self._too_large(blocks[taken[0] if taken else waiting[0]])
        shard.drop_last()
        waiting.insert(0, taken.pop())
      pending.extendleft(reversed(waiting))
      yield done

  def _units_of(self, examples: np.ndarray) -> list[int]:
    return [u for u in dict.fromkeys(self.table.members[examples].ravel().tolist()) if u >= 0]

  def _several(self, examples: np.ndarray) -> list[Shard]:
    """Return the full shards that these examples fill in their order, up to one that does not fit."""
    limits, members = self.limits, self.table.members
    count = len(examples) // limits.examples
    if members.shape[1] > 1 or not limits.packed or limits.examples > limits.units:
      count = 0
    parts = examples[: count * limits.examples].reshape(count, limits.examples)
    units = members[parts, 0].astype(np.int32, copy=False)
    its = self.lengths[units]
    twice = (np.diff(np.sort(units, axis=1), axis=1) == 0).any(axis=1)
    fine = (its.sum(axis=1) <= limits.rows * limits.row_length) & ~twice
    count = int(np.logical_and.accumulate(fine).sum())
    if count < 2:  # a unit may be there twice
      whole = self._at_once(examples[: limits.examples])
      return [whole] if whole else []
    row, start, rows = pack_alike(its[:count], limits.row_length)
    count = int(np.logical_and.accumulate(rows <= limits.rows).sum())
    return [Shard(parts[i], units[i], row[i], start[i], int(rows[i])) for i in range(count)]

  def _at_once(self, examples: np.ndarray) -> Shard | None:
    """Return the shard of just these examples where all fit, as `_fill` would fill it one by one."""
    units = np.fromiter(dict.fromkeys(self.table.members[examples].ravel().tolist()), np.int32)
    units = units[units >= 0]
    its = self.lengths[units]
    if not self.limits.hold(len(units), int(its.sum())):
      return None
    row, start, rows = self.limits.place(its)
    return Shard(examples, units, row, start, rows) if rows <= self.limits.rows else None

  def _too_large(self, block: np.ndarray) -> InputError:
    limits, units = self.limits, self._units_of(block)
    return InputError(
      f"{limits.rows_key}: {len(block)} examples that belong together have {len(units)} texts of "
      f"{int(self.lengths[units].sum())} tokens, and a shard ({limits.rows_key} / batch.shards) holds "
      f"{limits.rows} rows of {limits.row_length} tokens, {limits.units} texts and {limits.examples} "
      f"examples: raise {limits.rows_key}, or lower batch.shards or data.max_length"
    )
