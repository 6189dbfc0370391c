"""Which examples meet in a step: a pure function of (seed, epoch, token lengths)."""

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from as2jax.data.batches.examples import ExampleTable
from as2jax.runtime.errors import InputError


def pack(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray, int]:
  """Packs units into as few rows as best-fit decreasing finds (at most 11/9 of the optimum + 1).

  Args:
    lengths: tokens of each unit, `[n]`, each between 1 and `row_length`.
    row_length: tokens a row holds.

  Returns:
    The row of each unit `[n]`, its first position there `[n]`, and the number of rows. A pure
    function of its arguments: ties keep the order given.

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


def one_a_row(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray, int]:
  """Return the unpacked case of `pack`: every unit has a row of its own."""
  if len(lengths) and int(np.max(lengths)) > row_length:
    raise ValueError(f"a unit has {int(np.max(lengths))} tokens; a row holds {row_length}")
  return np.arange(len(lengths), dtype=np.int32), np.zeros(len(lengths), np.int32), len(lengths)


WINDOW = 24  # blocks looked at ahead to fill a shard's last tokens
WHOLE_QUESTIONS = ("grouped", "shared")  # samplers that keep a question's examples together
TRAINING = ("paper", *WHOLE_QUESTIONS)  # those of batches to train on


@dataclasses.dataclass(frozen=True)
class Limits:
  """What one shard of a batch may hold.

  `rows_key` is the key of the config that says the number of a batch's rows, for messages.
  """

  examples: int
  units: int
  rows: int
  row_length: int
  packed: bool = True
  rows_key: str = "batch.rows"


@dataclasses.dataclass(frozen=True)
class Shard:
  """The content of one shard: examples by number, and its distinct units placed in rows."""

  examples: np.ndarray
  units: np.ndarray
  row: np.ndarray
  start: np.ndarray
  rows: int


def question_blocks(table: ExampleTable, lengths: np.ndarray, limits: Limits) -> list[np.ndarray]:
  """Return the examples of each question; a question too large for a shard is cut into several blocks.

  Every example lies in exactly one block. Blocks are made once: they do not depend on the epoch.
  """
  if not len(table):
    return []
  edges = np.flatnonzero(np.diff(table.question)) + 1
  blocks = []
  for examples in np.split(np.arange(len(table)), edges):
    units = _distinct(table.members[examples])
    if len(examples) <= limits.examples and _place(units, lengths, limits) is not None:
      blocks.append(examples)
    else:
      blocks += _cut(examples, table, lengths, limits)
  return blocks


def beside_those_who_share(
  blocks: Sequence[np.ndarray], members: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
  """Return a random order of the blocks in which those that have units in common tend to be neighbours.

  Of the units that several blocks hold, each block is filed under the one that a random ranking of
  all units has first (MinHash, Broder 1997): blocks that share all such units always meet, others with
  the Jaccard similarity of these units as probability. A new ranking makes new neighbours.

  Args:
    blocks: numbers of examples.
    members: the units of each example, `[examples, members]`, -1 where there is none.
    rng: draws the ranking, and the order of the files and within them.

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


def _cut(
  examples: np.ndarray, table: ExampleTable, lengths: np.ndarray, limits: Limits
) -> list[np.ndarray]:
  """Cuts a run of examples greedily wherever the next one would not fit any more."""
  # Half of the tokens of a shard: two tiles of large questions then share one.
  room = max(limits.rows * limits.row_length // 2, limits.row_length)
  tile, tiles = _OpenShard(lengths, room, limits), []
  for example in examples.tolist():
    alone, units = np.asarray([example]), _distinct(table.members[example])
    if not tile.try_add(example, alone, units):
      if tile.blocks:
        tiles.append(tile.content())
      tile = _OpenShard(lengths, room, limits)
      tile.add(example, alone, units)
  return [*tiles, tile.content()]


def _distinct(members: np.ndarray) -> list[int]:
  """Return the distinct units of some examples, in order of first sight."""
  return [unit for unit in dict.fromkeys(members.ravel().tolist()) if unit >= 0]


def _place(
  units: Sequence[int], lengths: np.ndarray, limits: Limits
) -> tuple[np.ndarray, np.ndarray, int] | None:
  """Return what `pack` or `one_a_row` gives for some units; None where a shard cannot hold them."""
  tokens = lengths[np.asarray(units, np.int32)]
  if len(units) > limits.units or int(tokens.sum()) > limits.rows * limits.row_length:
    return None
  row, start, rows = (pack if limits.packed else one_a_row)(tokens, limits.row_length)
  return None if rows > limits.rows else (row, start, rows)


def _shard(
  examples: np.ndarray, units: Sequence[int], lengths: np.ndarray, limits: Limits
) -> Shard | None:
  """Return the shard of just these examples and their units; None where it cannot hold them."""
  placed = _place(units, lengths, limits)
  return None if placed is None else Shard(examples, np.asarray(units, np.int32), *placed)


class _OpenShard:
  """A shard that is being filled with blocks of examples.

  Args:
    cost: of each unit of the table.
    room: the most that the units of the shard may cost together.
    limits: of its examples and units.

  """

  def __init__(self, cost: np.ndarray, room: int, limits: Limits):
    self.cost, self.room, self.limits = cost, room, limits
    self.blocks: list[tuple[int, np.ndarray, list[int]]] = []  # number, examples, their new units
    self.units: dict[int, None] = {}
    self.examples = 0

  def try_add(self, number: int, examples: np.ndarray, units: Sequence[int]) -> bool:
    """Adds a block where there is room; tells whether there was."""
    new = [unit for unit in units if unit not in self.units]
    if (
      self.examples + len(examples) > self.limits.examples
      or len(self.units) + len(new) > self.limits.units
      or sum(int(self.cost[unit]) for unit in new) > self.room
    ):
      return False
    self.add(number, examples, new)
    return True

  def add(self, number: int, examples: np.ndarray, new: list[int]) -> None:
    """Adds a block, whatever room there is, with the units that are not there yet."""
    self.blocks.append((number, examples, new))
    self.units.update(dict.fromkeys(new))
    self.room -= sum(int(self.cost[unit]) for unit in new)
    self.examples += len(examples)

  def drop_last(self) -> int:
    """Takes the block out that was added last; returns its number."""
    number, examples, new = self.blocks.pop()
    for unit in new:
      del self.units[unit]
      self.room += int(self.cost[unit])
    self.examples -= len(examples)
    return number

  def content(self) -> np.ndarray:
    """Return the numbers of its examples."""
    return np.concatenate([examples for _, examples, _ in self.blocks])


def fill(
  blocks: Sequence[np.ndarray],
  order: np.ndarray,
  table: ExampleTable,
  lengths: np.ndarray,
  limits: Limits,
) -> Iterator[Shard]:
  """Fills shards with whole blocks in (nearly) the given order, each block exactly once.

  A block that does not fit waits, at most `WINDOW` of them at a time, for the next shard: so a
  shard never exceeds its limits, and no shape beyond the planned ones is ever needed.

  Raises:
    InputError: a block that no shard can hold.

  """
  members = table.members
  cost, room = lengths, limits.rows * limits.row_length
  if not limits.packed:
    cost, room = np.ones_like(lengths), limits.rows
  rest = iter(order)
  pending: collections.deque[int] = collections.deque()  # what waits, before the rest
  while True:
    if not pending:
      pending.extend(itertools.islice(rest, limits.examples))
      if not pending:
        return
      if isinstance(blocks, np.ndarray):  # one example each: all at once, where all fit
        chosen = blocks[list(pending), 0]
        whole = _shard(chosen, _distinct(members[chosen]), lengths, limits)
        if whole is not None:
          pending.clear()
          yield whole
          continue
    shard, waiting = _OpenShard(cost, room, limits), []
    while len(waiting) < WINDOW and shard.examples < limits.examples:
      pending.extend(itertools.islice(rest, 1 - min(len(pending), 1)))
      if not pending:
        break
      number = pending.popleft()
      if not shard.try_add(number, blocks[number], _distinct(members[blocks[number]])):
        waiting.append(number)
    done = None
    while done is None:
      if not shard.blocks:
        raise _too_large(blocks[waiting[0]], members, lengths, limits)
      done = _shard(shard.content(), list(shard.units), lengths, limits)
      if done is None:
        waiting.insert(0, shard.drop_last())
    pending.extendleft(reversed(waiting))
    yield done


def _too_large(
  block: np.ndarray, members: np.ndarray, lengths: np.ndarray, limits: Limits
) -> InputError:
  units = _distinct(members[block])
  tokens = int(lengths[units].sum())
  return InputError(
    f"{limits.rows_key}: {len(block)} examples that belong together have {len(units)} texts of "
    f"{tokens} tokens, and a shard ({limits.rows_key} / batch.shards) holds {limits.rows} rows of "
    f"{limits.row_length} tokens, {limits.units} texts and {limits.examples} examples: raise "
    f"{limits.rows_key}, or lower batch.shards or data.max_length"
  )


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
    """Return the numbers of the examples, in blocks that stay together in every order of an epoch."""
    if self.name in WHOLE_QUESTIONS:
      return question_blocks(self.table, self.lengths, self.limits)
    if self.name in (*TRAINING, "ordered", "by_length"):
      return np.arange(len(self.table))[:, None]
    raise InputError(
      f"batch.sampler = {self.name!r} is not known; use one of {', '.join(TRAINING)}"
    )

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
    return fill(blocks, order, self.table, self.lengths, self.limits)
