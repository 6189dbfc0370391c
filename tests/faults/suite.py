"""The parts of the fault-injection suite, their sizes, and the command."""

import argparse
import logging
import os
import pathlib
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence

from tests.faults import fuzz
from tests.faults.fuzz import Totals

SIZES = {  # part -> its sizes in the large form, in the small form
  "kills": ((18,), (2,)),
  "stops": ((50, 10, 12), (3, 2, 5)),
  "fuzz": ((10_000,), (500,)),
  "checkpoints": ((300,), (15,)),
  "caches": ((300,), (15,)),
  "folders": ((100,), (3,)),
}


def run(part: str, base: pathlib.Path, seed: int, sizes: Sequence[int]) -> Iterable[Totals]:
  """The totals of a part, each when it is known. `kills`, then `stops` come first: they fork, from a process that has not used jax."""
  from tests.faults import stops

  runs = stops.Runs(base / "runs")
  if part == "stops":
    return stops.stop(runs, seed, *sizes)
  if part == "checkpoints" and not runs.plain.exists():
    runs.finish("plain")
  if part == "kills":
    from tests.faults import kills

    if "LD_PRELOAD" not in os.environ:
      print("kills: needs a C compiler, cc")
      return []
    one = kills.Kills(base / "kills")
    return (one.cases(verb, *sizes, seed) for verb in kills.VERBS)
  if part == "fuzz":
    from tests.faults import readers

    return [fuzz.run(readers.readers(), *sizes, seed)]
  from tests.faults import bits

  if part == "caches":
    return bits.in_caches(seed, *sizes, base / "caches")
  if part == "folders":
    from tests.faults import folders

    return folders.damage(seed, *sizes, base)
  return [bits.in_checkpoints(runs.plain.parent, seed, *sizes, base)]


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the parts that are named, all by default; the status is 1 where a case was wrong."""
  parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
  parser.add_argument("parts", nargs="*", help=f"of {', '.join(SIZES)}; all by default")
  parser.add_argument("--small", action="store_true", help="the form of the slow tests")
  parser.add_argument("--every", action="store_true", help="`kills` at every file call: hours")
  parser.add_argument("--seed", type=int, default=0)
  options = parser.parse_args(arguments)
  warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # children use no device of ours
  logging.disable(logging.WARNING)
  totals = []
  with tempfile.TemporaryDirectory() as scratch:
    os.environ["AS2JAX_CACHE"] = str(pathlib.Path(scratch, "cache"))
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    for name in options.parts or SIZES:
      start = time.monotonic()
      sizes = SIZES[name][options.small]
      if name == "kills" and options.every:
        sizes = (10**6,)
      for total in run(name, pathlib.Path(scratch), options.seed, sizes):
        print("\n".join([str(total), *total.wrong]), flush=True)
        totals.append(total)
      print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    tempfile.tempdir = None
  wrong = sum(len(total.wrong) for total in totals)
  cases = sum(total.outcomes.total() for total in totals)
  head = ["git", "rev-parse", "--short", "HEAD"]
  here = pathlib.Path(__file__).parent
  commit = subprocess.run(head, cwd=here, capture_output=True, text=True).stdout.strip()
  print(f"commit {commit or 'unknown'}, seed {options.seed}: {cases} cases, {wrong} wrong")
  return int(wrong > 0)
