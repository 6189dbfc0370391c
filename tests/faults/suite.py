"""The parts of the fault-injection suite, their sizes, and the command."""

import argparse
import logging
import os
import pathlib
import subprocess
import tempfile
import time
import warnings
from collections.abc import Sequence

from tests.faults import fuzz
from tests.faults.totals import Totals

SIZES = {  # part -> its sizes in the large form, in the small form
  "stops": ((50, 10, 12), (3, 2, 5)),
  "interrupts": ((100,), (8,)),
  "fuzz": ((10_000,), (500,)),
  "checkpoints": ((300,), (15,)),
  "caches": ((300,), (15,)),
  "weights": ((100,), (10,)),
}


def stops(base: pathlib.Path, seed: int, kills: int, others: int, a_run: int) -> list[Totals]:
  """Runs that are stopped by signals. It must be the first part: see `stops`."""
  from tests.faults import stops

  return stops.stop(stops.Runs(base / "runs"), seed, kills, others, a_run)


def interrupts(base: pathlib.Path, seed: int, cases: int) -> list[Totals]:
  """Ctrl-C to commands."""
  _finished(base)
  from tests.faults import interrupts, stops

  return interrupts.interrupt(stops.Runs(base / "runs"), seed, cases)


def damaged_files(base: pathlib.Path, seed: int, cases: int) -> list[Totals]:
  """Damaged files to every reader."""
  del base
  from tests.faults import readers

  return [fuzz.run(readers.readers(), cases, seed)]


def _finished(base: pathlib.Path) -> pathlib.Path:
  """The folder of a finished run."""
  from tests.faults import stops

  folder = base / "runs" / "plain"
  if not (folder / "results.json").exists():
    stops.Runs(base / "runs").finish("plain")
  return folder


def checkpoints(base: pathlib.Path, seed: int, cases: int) -> list[Totals]:
  """Flipped bits in checkpoints."""
  folder = _finished(base)
  from tests.faults import bits

  return [bits.in_checkpoints(folder, seed, cases, base)]


def caches(base: pathlib.Path, seed: int, cases: int) -> list[Totals]:
  """Flipped bits in token tables, prepared data, frozen vectors and training splits."""
  from tests.faults import bits

  return bits.in_caches(seed, cases, base / "caches")


def weights(base: pathlib.Path, seed: int, cases: int) -> list[Totals]:
  """Flipped bits in an encoder's files."""
  folder = _finished(base)
  from tests.faults import bits

  return [bits.in_weights(folder, seed, cases, base)]


PARTS = {
  "stops": stops,
  "interrupts": interrupts,
  "fuzz": damaged_files,
  "checkpoints": checkpoints,
  "caches": caches,
  "weights": weights,
}


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the parts that are named, all by default; the status is 1 where a case was wrong."""
  parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
  parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
  parser.add_argument("--small", action="store_true", help="the form of the slow tests")
  parser.add_argument("--seed", type=int, default=0)
  options = parser.parse_args(arguments)
  warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # children use no device of ours
  logging.disable(logging.WARNING)
  totals = []
  with tempfile.TemporaryDirectory() as scratch:
    os.environ["AS2JAX_CACHE"] = str(pathlib.Path(scratch, "cache"))
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    for name in options.parts or PARTS:
      start = time.monotonic()
      actual = PARTS[name](pathlib.Path(scratch), options.seed, *SIZES[name][options.small])
      for total in actual:
        print("\n".join([str(total), *total.wrong]), flush=True)
      print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
      totals += actual
    tempfile.tempdir = None
  wrong = sum(len(total.wrong) for total in totals)
  cases = sum(total.outcomes.total() for total in totals)
  print(f"commit {_commit()}, seed {options.seed}: {cases} cases, {wrong} wrong")
  return int(wrong > 0)


def _commit() -> str:
  command = ["git", "rev-parse", "--short", "HEAD"]
  process = subprocess.run(
    command, cwd=pathlib.Path(__file__).parent, capture_output=True, text=True
  )
  return process.stdout.strip() or "unknown"
