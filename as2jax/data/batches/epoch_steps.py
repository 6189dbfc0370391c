"""The steps of an epoch, kept as arrays: twenty million examples take bytes, not objects."""

import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np

from as2jax.data.batches.samplers import Shard

Step = tuple[tuple[Shard | None, ...], ...]


class Steps(Sequence[Step]):
  """`steps[i][micro][shard]`: what each shard of each step holds; None for one without content.

  A `Shard` is made when it is asked for. Of an example 4 bytes are kept, of a unit 12.

  Args:
    content: the shards of the epoch, in order.
    shards: shards a batch; accumulate: batches a step.

  """

  def __init__(self, content: Iterable[Shard], shards: int, accumulate: int):
    self._shards, self._accumulate = shards, accumulate
    examples, units, row, start = (array.array("i") for _ in range(4))
    rows, example_ends, unit_ends = array.array("i"), array.array("q", [0]), array.array("q", [0])
    for shard in content:
      for kept, values in zip(
        (examples, units, row, start),
        (shard.examples, shard.units, shard.row, shard.start),
        strict=True,
      ):
        kept.frombytes(values.astype(np.int32, copy=False).tobytes())
      rows.append(shard.rows)
      example_ends.append(len(examples))
      unit_ends.append(len(units))
    self._examples, self._units, self._row, self._start, self.rows = (
      np.frombuffer(kept, np.int32) for kept in (examples, units, row, start, rows)
    )
    self._example_ends, self._unit_ends = (
      np.frombuffer(ends, np.int64) for ends in (example_ends, unit_ends)
    )

  @property
  def count(self) -> int:
    """Number of shards with content."""
    return len(self.rows)

  @property
  def per_step(self) -> int:
    """Shards a step."""
    return self._shards * self._accumulate

  def __len__(self) -> int:
    return -(-self.count // self.per_step)

  def shard(self, number: int) -> Shard | None:
    """A shard by its number in the epoch; None beyond the last."""
    if number >= self.count:
      return None
    examples = slice(*self._example_ends[number : number + 2])
    units = slice(*self._unit_ends[number : number + 2])
    return Shard(
      self._examples[examples],
      self._units[units],
      self._row[units],
      self._start[units],
      int(self.rows[number]),
    )

  @overload
  def __getitem__(self, index: int) -> Step: ...
  @overload
  def __getitem__(self, index: slice) -> Sequence[Step]: ...
  def __getitem__(self, index):
    """One step, or several as a list."""
    if isinstance(index, slice):
      return [self[i] for i in range(*index.indices(len(self)))]
    if not -len(self) <= index < len(self):
      raise IndexError(f"step {index} of {len(self)}")
    first = index % len(self) * self.per_step
    return tuple(
      tuple(self.shard(first + micro * self._shards + s) for s in range(self._shards))
      for micro in range(self._accumulate)
    )

  def __iter__(self) -> Iterator[Step]:
    return (self[i] for i in range(len(self)))

  def by_step(self, values: np.ndarray, combine: np.ufunc) -> np.ndarray:
    """Values `[count]` of the shards, combined over each step: `[steps]`."""
    if not self.count:
      return np.zeros(0, values.dtype)
    return combine.reduceat(values, np.arange(0, self.count, self.per_step))

  def examples_of_shards(self) -> np.ndarray:
    """Number of examples of each shard, `[count]`."""
    return np.diff(self._example_ends)

  def of_units(self, values: np.ndarray, combine: np.ufunc) -> np.ndarray:
    """Values `[units]` of the table, combined over the units of each shard: `[count]`."""
    if not self.count:
      return np.zeros(0, values.dtype)
    return combine.reduceat(values[self._units], self._unit_ends[:-1])
