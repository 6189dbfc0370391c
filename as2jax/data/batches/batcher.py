"""Batches of fixed shapes, cut from tables by number, and made ahead of their use."""

import array
import collections
import concurrent.futures
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from as2jax.data.batches.batch import Batch, Examples, Tokens, Units, Words
from as2jax.data.batches.examples import ExampleTable
from as2jax.data.batches.samplers import Limits, Sampler, Shard
from as2jax.data.record import UNKNOWN
from as2jax.data.text.tokenise import UnitTable
from as2jax.runtime.errors import InputError

T = TypeVar("T")
Step = tuple[tuple[Shard | None, ...], ...]  # [micro][shard], None for one without content


class Steps(Sequence[Step]):
  """Holds `steps[i][micro][shard]` in flat arrays: 4 bytes an example, and 12 a unit."""

  def __init__(self, shards: int, accumulate: int):
    self.shards, self.per_step = shards, shards * accumulate
    self.flat = [array.array("i") for _ in range(4)]  # examples, units, row, start
    self.example_ends, self.unit_ends = array.array("q", [0]), array.array("q", [0])
    self.rows = array.array("i")

  def append(self, shard: Shard) -> None:
    """Add the epoch's next shard."""
    for values, more in zip(self.flat, (shard.examples, shard.units, shard.row, shard.start)):
      values.frombytes(more.astype(np.int32, copy=False).tobytes())
    self.example_ends.append(len(self.flat[0]))
    self.unit_ends.append(len(self.flat[1]))
    self.rows.append(shard.rows)

  def __len__(self) -> int:
    return -(-len(self.rows) // self.per_step)

  def __getitem__(self, index: int) -> Step:
    first = range(len(self))[index] * self.per_step
    shards = [self._shard(first + i) for i in range(self.per_step)]
    micros = range(0, self.per_step, self.shards)
    return tuple(tuple(shards[at : at + self.shards]) for at in micros)

  def _shard(self, number: int) -> Shard | None:
    if number >= len(self.rows):
      return None
    examples, *of_units = (np.frombuffer(values, np.int32) for values in self.flat)
    first, end = self.unit_ends[number : number + 2]
    units, row, start = (values[first:end] for values in of_units)
    first, end = self.example_ends[number : number + 2]
    return Shard(examples[first:end], units, row, start, self.rows[number])


AHEAD = 2  # batches that wait to be used
TRIAL = 2**16  # shards that decide how many rows `paper` batches have
Level = Literal["token", "vocabulary", "word", "unit", "example"]


class Column(NamedTuple):
  """Holds what a model reads of each token, word, unit or example beside the token ids.
  `values` `[rows, …]` (may be memory-mapped) belong to tokens, words or units of the `UnitTable`,
  to vocabulary ids (each token with that id gets its row), or to examples of the `ExampleTable`.
  """

  level: Level
  values: np.ndarray


@dataclasses.dataclass(frozen=True)
class Plan:
  """Holds one epoch: `steps[i][micro][shard]`, with the shape that each step is padded to.
  `rows` and `row_length` are the bucket of each step, `[steps]`; `seen` the examples before each
  step, `[steps + 1]`, of which the last is the epoch's total; `tokens` those of each step.
  """

  steps: Steps
  rows: np.ndarray
  row_length: np.ndarray
  seen: np.ndarray
  tokens: np.ndarray

  def __len__(self) -> int:
    return len(self.steps)


@dataclasses.dataclass(frozen=True)
class Batcher:
  """Plans epochs over one split and cuts their batches.

  `sampler` says which examples of the tables meet. `rows` and `row_lengths` are what a batch may
  have, ascending: the last number of rows is the sampler's limit, and packed batches use the last
  length alone. A step has `accumulate` batches of `shards` shards, with slots for `words` word
  spans (0 leaves spans out) and the columns `inputs`, by name.
  """

  units: UnitTable
  examples: ExampleTable
  sampler: Sampler
  rows: tuple[int, ...]
  row_lengths: tuple[int, ...]
  shards: int = 1
  accumulate: int = 1
  words: int = 0
  inputs: Mapping[str, Column] = dataclasses.field(default_factory=dict)

  def plan(self, blocks: Sequence[np.ndarray], seed: int, epoch: int) -> Plan:
    """Return the epoch's steps: a pure function of (seed, epoch, token lengths)."""
    shards = self.sampler.epoch(blocks, seed, epoch)
    steps = Steps(self.shards, self.accumulate)
    needs = array.array("q")  # of a step: the most rows, the longest unit, examples and tokens
    while content := list(itertools.islice(shards, self.shards * self.accumulate)):
      lengths = self.sampler.lengths[np.concatenate([shard.units for shard in content])]
      examples = sum(len(shard.examples) for shard in content)
      needs.extend((max(s.rows for s in content), lengths.max(), examples, lengths.sum()))
      for shard in content:
        steps.append(shard)
    rows, longest, examples, tokens = np.asarray(needs, np.int64).reshape(-1, 4).T
    row_length = np.full(len(steps), self.row_lengths[-1])
    if not self.sampler.limits.packed:
      row_length = np.asarray(self.row_lengths)[np.searchsorted(self.row_lengths, longest)]
    rows = np.asarray(self.rows)[np.searchsorted(self.rows, rows)]
    return Plan(steps, rows, row_length, np.cumsum(np.append(0, examples)), tokens)

  def padding(self, plan: Plan) -> float:
    """Return the share of the epoch's token positions that hold padding."""
    return 1 - int(plan.tokens.sum()) / max(int(self._positions(plan).sum()), 1)

  def padding_by_step(self, plan: Plan) -> np.ndarray:
    """Return the same of each step, float64 `[steps]`."""
    return 1 - plan.tokens / np.maximum(self._positions(plan), 1)

  def _positions(self, plan: Plan) -> np.ndarray:
    return plan.rows.astype(np.int64) * plan.row_length * (self.shards * self.accumulate)

  def batch(
    self,
    plan: Plan,
    step: int,
    shape: tuple[int, int] | None = None,
    only: Sequence[int] | None = None,
  ) -> Batch:
    """Return batch `step` of the epoch as numpy arrays `[accumulate, shard, …]`.
    A step beyond the plan's end is a batch without content. `shape` (rows, row length) overrides
    the plan's bucket, for seeds that step together. `only` names the shards that are made: those of
    this host.
    """
    shape = shape or (int(plan.rows[step]), int(plan.row_length[step]))
    none = ((None,) * self.shards,) * self.accumulate
    content = plan.steps[step] if step < len(plan) else none
    chosen = range(self.shards) if only is None else only
    return stack([stack([self._shard(shards[s], *shape) for s in chosen]) for shards in content])

  def _shard(self, shard: Shard | None, rows: int, row_length: int) -> Batch:
    if shard is None:
      empty = np.zeros(0, np.int32)
      shard = Shard(empty, empty, empty, empty, 0)
    slots = self.sampler.limits.units
    units = Units(
      row=_pad(shard.row, slots),
      start=_pad(shard.start, slots),
      length=_pad(self.sampler.lengths[shard.units].astype(np.int32), slots),
      id=_pad(shard.units, slots, -1),
      inputs=self._inputs("unit", shard.units, slots),
    )
    words = self._words(shard) if self.words else None
    return Batch(self._tokens(shard, rows, row_length), units, self._examples(shard), words)

  def _tokens(self, shard: Shard, rows: int, row_length: int) -> Tokens:
    table = self.units
    unit_of, within = _spread(self.sampler.lengths[shard.units])
    source = table.offsets[shard.units][unit_of] + within
    target = shard.row[unit_of] * row_length + shard.start[unit_of] + within
    order = np.lexsort((shard.start, shard.row))  # units of a row, left to right
    first = np.searchsorted(shard.row[order], shard.row[order])  # where the row begins
    number = np.zeros(len(order), np.int32)
    number[order] = np.arange(len(order)) - first + 1
    place = functools.partial(_place, target=target, shape=(rows, row_length))
    inputs = self._inputs("token", source) | self._inputs("vocabulary", table.ids[source])
    return Tokens(
      ids=place(table.ids[source]),
      segment=place(number[unit_of]),
      position=place(within),
      type=place(table.type[source].astype(np.int32)),
      role=place(table.role[source].astype(np.int32)),
      inputs={name: place(values) for name, values in inputs.items()},
    )

  def _inputs(self, level: Level, rows: np.ndarray, slots: int = 0) -> dict[str, np.ndarray]:
    """Return the chosen `rows` of each column of a level, padded to `slots` where given."""
    chosen = {}
    for name, column in self.inputs.items():
      if column.level == level:
        values = np.asarray(column.values[rows])
        chosen[name] = _pad(values, slots) if slots else values
    return chosen

  def _examples(self, shard: Shard) -> Examples:
    table, slots = self.examples, self.sampler.limits.examples
    members = table.members[shard.examples]
    order = np.argsort(shard.units)  # numbers in the table -> slots in the shard
    members = order[np.searchsorted(shard.units, members, sorter=order)]
    return Examples(
      members=_pad(members.astype(np.int32), slots),
      labels=_pad(table.labels[shard.examples].astype(np.int32), slots, UNKNOWN),
      mask=_pad(np.ones(len(shard.examples), np.float32), slots),
      question=_pad(table.question[shard.examples], slots, -1),
      answer=_pad(table.answer[shard.examples], slots, -1),
      inputs=self._inputs("example", shard.examples, slots),
    )

  def _words(self, shard: Shard) -> Words:
    table, slots = self.units, self.words
    unit_of, within = _spread(np.diff(table.word_offsets)[shard.units].astype(np.int32))
    source = table.word_offsets[shard.units][unit_of] + within
    return Words(
      unit=_pad(unit_of.astype(np.int32), slots),
      start=_pad(table.word_start[source], slots),
      length=_pad(table.word_length[source], slots),
      role=_pad(table.word_role[source].astype(np.int32), slots),
      form=_pad(table.word_form[source], slots),
      inputs=self._inputs("word", source, slots),
    )


def _spread(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Return of each item of spans laid end to end its span and its place in it."""
  span = np.repeat(np.arange(len(lengths)), lengths)
  begin = np.cumsum(lengths) - lengths
  return span, (np.arange(len(span)) - begin[span]).astype(np.int32)


def _place(values: np.ndarray, target: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
  """Return rows of `shape` with values at the positions `target`, 0 elsewhere."""
  flat = np.zeros((shape[0] * shape[1], *values.shape[1:]), values.dtype)
  flat[target] = values
  return flat.reshape(*shape, *values.shape[1:])


def _pad(values: np.ndarray, slots: int, fill=0) -> np.ndarray:
  padded = np.full((slots, *values.shape[1:]), fill, values.dtype)
  padded[: len(values)] = values
  return padded


def stack(batches: Sequence[Batch]) -> Batch:
  """Stack batches of one shape along a new first axis."""
  import jax  # here, so that planning alone needs no accelerator

  leaves = zip(*map(jax.tree.leaves, batches))
  return jax.tree.unflatten(jax.tree.structure(batches[0]), map(np.stack, leaves))


def fit_batcher(
  units: UnitTable,
  examples: ExampleTable,
  *,
  sampler: str,
  examples_per_batch: int,
  rows: int,
  row_lengths: Sequence[int],
  packed: bool,
  shards: int,
  accumulate: int,
  buckets: int,
  unit_slots: int = 0,
  inputs: Mapping[str, Column] = MappingProxyType({}),
  rows_key: str = "batch.rows",
) -> Batcher:
  """Choose the shapes for a split: all that `Batcher` needs and a config leaves open.

  `examples_per_batch` is their number for `paper`, for the others the most; with `rows` 0, `paper`
  measures what its batches need and chooses from `buckets` numbers of rows. `unit_slots` 0 fits the
  units a shard to the lengths, so that another split may differ. `rows_key` names the key of `rows`
  in messages. Raises InputError for sizes that do not divide by `shards`, or units longer than a
  row.
  """
  for name, value in (("batch.examples", examples_per_batch), (rows_key, rows)):
    if value % shards:
      raise InputError(f"{name} = {value} does not divide into batch.shards = {shards}")
  lengths = np.diff(units.offsets).astype(np.int32)
  row_lengths = tuple(sorted(row_lengths))
  longest, most = row_lengths[-1], int(lengths.max(initial=0))
  if most > longest:
    raise InputError(
      f"a unit has {most} tokens, but batch.row_lengths end at {longest}: raise it or lower "
      "data.max_length"
    )
  per_shard, width = examples_per_batch // shards, examples.members.shape[1]
  if rows:
    room = rows // shards
    if packed:  # two fifths more units than fit at their mean length
      mean = max(float(lengths.mean()), 1.0) if len(lengths) else 1.0
      room = int(1.4 * rows // shards * longest / mean) + 8
    unit_slots = unit_slots or max(min(room, per_shard * width), 1)
    limits = Limits(per_shard, unit_slots, rows // shards, longest, packed, rows_key)
    ladder: tuple[int, ...] = (rows // shards,)
  else:
    ladder = _row_ladder(examples, lengths, sampler, per_shard, longest, packed, buckets)
    limits = Limits(per_shard, per_shard * width, ladder[-1], longest, packed)
  words = any(column.level == "word" for column in inputs.values())
  word_slots = limits.rows * limits.row_length if words else 0  # a word has at least one token
  sampled = Sampler(sampler, examples, lengths, limits)
  return Batcher(
    units, examples, sampled, ladder, row_lengths, shards, accumulate, word_slots, inputs
  )


def _row_ladder(examples, lengths, sampler, per_shard, row_length, packed, buckets):
  """Return the numbers of rows that random batches of `per_shard` examples need, in quantiles.
  Measured on one shuffle that no seed of a run shares, so that every seed has the same shapes; of
  large data on its first `TRIAL` shards. What exceeds the most waits for a shard with more room.
  """
  free = per_shard * examples.members.shape[1]
  limits = Limits(per_shard, free, free, row_length, packed)
  trial = Sampler(sampler, examples, lengths, limits)
  shuffled = itertools.islice(trial.epoch(trial.blocks(), 2**31, 0), TRIAL)
  needed = np.asarray([s.rows for s in shuffled] or [1])
  quantiles = np.quantile(needed, np.linspace(0, 1, buckets + 1)[1:], method="higher")
  return tuple(sorted({int(q) for q in quantiles}))


def prefetch(make: Callable[[int], T], numbers: Iterable[int]) -> Iterator[T]:
  """Yields `make(i)` for each number, in order, made at most `AHEAD` ahead.

  It hides latency and decides nothing: the items are those of a plain loop. An exception in `make`
  is raised where its item would have been yielded; a consumer that stops early stops the thread.
  """
  ahead: collections.deque[concurrent.futures.Future] = collections.deque()
  with concurrent.futures.ThreadPoolExecutor(1, "prefetch") as pool:
    try:
      for i in numbers:
        ahead.append(pool.submit(make, i))
        if len(ahead) > AHEAD:
          yield ahead.popleft().result()
      while ahead:
        yield ahead.popleft().result()
    finally:
      pool.shutdown(cancel_futures=True)
