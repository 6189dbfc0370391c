"""Writing a split as array_record shards in one pass, whatever its size, with progress."""

import dataclasses
import sys
import time
from collections.abc import Iterable, Iterator

from etils import epath

SHARD_BYTES = 1 << 28
SECONDS = 10.0  # between two lines of progress


@dataclasses.dataclass(frozen=True)
class Written:
  """The numbers of examples of each shard, and the bytes of all shards."""

  shard_lengths: tuple[int, ...]
  bytes: int


def write_shards(folder: epath.Path, prefix: str, examples: Iterable[bytes]) -> Written:
  """Writes serialised examples, in their order, to `<prefix>-00000-of-0000N` in `folder`.

  TFDS's own writer keeps the examples of a split that is not shuffled in memory; here one example
  is held. A shard is closed once it holds `SHARD_BYTES`, and named when their number is known.
  """
  from array_record.python import array_record_module

  lengths: list[int] = []
  total = 0
  writer, held = None, 0
  try:
    for example in examples:
      if writer is None:
        part = folder / f"{prefix}.{len(lengths)}.part"
        writer, held = array_record_module.ArrayRecordWriter(str(part), "group_size:1"), 0
        lengths.append(0)
      writer.write(example)
      lengths[-1] += 1
      held += len(example)
      total += len(example)
      if held >= SHARD_BYTES:
        writer.close()
        writer = None
  finally:
    if writer is not None:
      writer.close()
  for i in range(len(lengths)):
    name = f"{prefix}-{i:05d}-of-{len(lengths):05d}"
    (folder / f"{prefix}.{i}.part").rename(folder / name)
  return Written(tuple(lengths), total)


class Progress:
  """Reports the progress of a long preparation on standard error, by occasional lines.

  On a terminal the line replaces the one before.
  """

  def __init__(self, task: str, *, unit: str):
    self._task, self._unit = task, unit
    self._start = self._last = time.monotonic()
    self._records = self._units = 0
    self._said = False

  def passing(self, records: Iterable) -> Iterator:
    """Yields the records and counts them (a question counts as its candidates)."""
    for record in records:
      self._records += 1
      self._units += len(getattr(record, "candidates", (record,)))
      if self._records % 64 == 0 and time.monotonic() - self._last > SECONDS:
        self._say()
      yield record
    if self._said:
      self._say(end="\n")

  def _say(self, end: str = "") -> None:
    self._last = time.monotonic()
    self._said = True
    seconds = self._last - self._start
    line = (
      f"{self._task}: {self._units:,} {self._unit} in {seconds:.0f} s "
      f"({self._units / max(seconds, 1e-9):,.0f} a second)"
    )
    terminal = sys.stderr.isatty()
    print(
      f"\r{line}\x1b[K" if terminal else line,
      end=end if terminal else "\n",
      file=sys.stderr,
      flush=True,
    )
