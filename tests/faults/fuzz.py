"""Damaged files to every reader, in forked workers, so that a crash or a hang is a finding, too.

A case is right where the reader refuses the file with an error that names its place, or reads the object
of the undamaged file. A format without a checksum cannot tell: what is read of it is counted as not judged.
"""

import collections
import dataclasses
import os
import pathlib
import random
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from as2jax.runtime.errors import InputError
from tests.file_damage import MORE_JUNK, damaged_by

HANGS = 90.0  # seconds for one case, on a machine that does other things, too
UNJUDGED = "read, not judged"
RIGHT = ("refused", "the undamaged object", UNJUDGED)
MEMORY = 6 << 30  # bytes of address space beyond what the process has: no case may ask for more


@dataclasses.dataclass
class Totals:
  """Outcomes of the cases of one kind.

  Attributes:
    name: of the kind.
    outcomes: what was said or done -> number of cases.
    wrong: one line for each case that was silent, raw, hung or not the same to the bit.
    told: when standard error was told last how far it is.

  """

  name: str
  outcomes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
  wrong: list[str] = dataclasses.field(default_factory=list)
  told: float = dataclasses.field(default_factory=time.monotonic)

  def add(self, outcome: str, *, wrong: str = "") -> None:
    """Counts one case; tells standard error what is wrong at once, and all 10 seconds how far it is."""
    self.outcomes[outcome] += 1
    if wrong:
      self.wrong.append(f"{self.name}: {wrong}")
      print(self.wrong[-1], file=sys.stderr)
    if time.monotonic() > self.told + 10:
      self.told = time.monotonic()
      print(self, file=sys.stderr, flush=True)

  def __str__(self) -> str:
    parts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(self.outcomes.items()))
    return f"{self.name}: {self.outcomes.total()} cases: {parts}; {len(self.wrong)} wrong"


@dataclasses.dataclass(frozen=True)
class Reader:
  """A reader of files.

  Attributes:
    name: of the format.
    contents: whole files that it reads.
    judge: (folder, content of the file) -> one of `RIGHT`; anything raised is wrong.

  """

  name: str
  contents: Sequence[bytes]
  judge: Callable[[pathlib.Path, bytes], str]


def judged(
  name: str,
  read: Callable[[pathlib.Path], Any],
  same: Callable[[Any], bool] | None = None,
  place: str = "",
) -> Callable:
  """The judge that writes the file `name` and reads it.

  Args:
    name: of the file.
    read: reads it.
    same: whether what was read is the undamaged object; None of a format without a checksum.
    place: what an error must name, instead of the folder and the file.

  """

  def judge(folder: pathlib.Path, data: bytes) -> str:
    path = folder / name
    path.write_bytes(data)
    try:
      actual = read(path)
    except InputError as error:
      named = str(place or folder) in str(error) and (place or path.name) in str(error)
      assert named, f"no place: {error}"
      return "refused"
    if same is None:
      return UNJUDGED
    assert same(actual), "silent: another object than the undamaged one"
    return "the undamaged object"

  return judge


def run(readers: Sequence[Reader], cases: int, seed: int) -> Totals:
  """Gives each reader its share of `cases`; whole files first, which must be read."""
  totals = Totals("damaged files")
  case = 0
  while case < cases:
    case = _worker(readers, case, cases, seed, totals)
  return totals


def content(readers: Sequence[Reader], case: int, seed: int) -> tuple[Reader, bytes, bool]:
  """The reader and the file of a case, and whether the file is whole."""
  reader = readers[case % len(readers)]
  rng = random.Random(f"{seed} {case}")
  turn = case // len(readers)
  whole = turn < len(reader.contents)
  chosen = reader.contents[turn] if whole else rng.choice(reader.contents)
  return reader, chosen if whole else damaged_by(rng, chosen, MORE_JUNK), whole


def _worker(readers, first: int, end: int, seed: int, totals: Totals) -> int:
  """Forks a process for the cases from `first`; returns the first one that it did not judge."""
  receive, send = os.pipe()
  child = os.fork()
  if child == 0:
    os.close(receive)
    _judge_all(readers, first, end, seed, send)
  os.close(send)
  case, buffer = first, b""
  while True:
    if not select.select([receive], [], [], HANGS)[0]:
      os.kill(child, signal.SIGKILL)
      break
    part = os.read(receive, 1 << 16)
    if not part:
      break
    *lines, buffer = (buffer + part).split(b"\n")
    for line in lines:
      outcome = line.decode(errors="replace")
      good = outcome in RIGHT
      name = readers[case % len(readers)].name
      totals.add(outcome if good else "wrong", wrong="" if good else f"{case} {name}: {outcome}")
      case += 1
  os.close(receive)
  status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
  if status:
    name = readers[case % len(readers)].name
    what = "hung" if status == -signal.SIGKILL else f"the process died ({status})"
    totals.add("wrong", wrong=f"{case} {name}: {what}")
    case += 1
  return case


def _judge_all(readers, first: int, end: int, seed: int, send: int) -> None:
  """The child: one line for each case."""
  pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
  limit = pages * resource.getpagesize() + MEMORY
  resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
  status = 1
  try:
    with tempfile.TemporaryDirectory() as scratch:
      for case in range(first, end):
        reader, data, whole = content(readers, case, seed)
        folder = pathlib.Path(scratch, reader.name)
        folder.mkdir(exist_ok=True)
        os.write(send, _outcome(reader, folder, data, whole).encode() + b"\n")
      status = 0
  finally:
    os._exit(status)


def _outcome(reader: Reader, folder: pathlib.Path, data: bytes, whole: bool) -> str:
  try:
    outcome = reader.judge(folder, data)
    if whole and outcome == "refused":
      return "a whole file was refused"
    return outcome
  except BaseException as error:  # Rust's panics are no `Exception`
    places = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{pathlib.Path(p.filename).name}:{p.lineno}" for p in reversed(places[-4:]))
    text = f"{type(error).__name__}: {str(error)[:200]} ({where})"
    return " ".join(text.split())
