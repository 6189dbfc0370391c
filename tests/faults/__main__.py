"""The fault-injection suite: `python -m tests.faults` (large) or `… --small` (a minute).

It stops runs by signals, kills commands at their file calls, damages files of runs, encoders, exports, indexes
and sweeps, and gives damaged files to every reader. It prints totals, and each case that was silent, raw, hung
or not the same to the bit; the status is 1 where there is any.
"""

import argparse
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The test modules' imports, as pytest's `pythonpath` has them.
for folder in ("", "encoders"):
  sys.path.insert(1, str(ROOT / "tests" / folder))
# Before jax is imported; as in `conftest.py`.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault(
  "JAX_COMPILATION_CACHE_DIR", os.environ.get("AS2JAX_TEST_CACHE") or str(ROOT / ".jax_cache")
)

from tests.faults import fuzz  # noqa: E402

SIZES = {  # part -> its sizes in the large form, in the small form
  "kills": ((18,), (2,)),
  "stops": ((50, 10, 12), (3, 2, 5)),
  "fuzz": ((10_000,), (500,)),
  "folders": ((100,), (3,)),
}


def run(part: str, base: pathlib.Path, seed: int, sizes: Sequence[int]) -> Iterable[fuzz.Totals]:
  """The totals of a part, each when it is known. `kills`, then `stops` come first: they fork, from a process that has not used jax."""
  if part == "kills":
    from tests.faults import kills

    if "LD_PRELOAD" not in os.environ:
      print("kills: needs a C compiler, cc")
      return []
    one = kills.Kills(base / "kills")
    return (one.cases(verb, *sizes, seed) for verb in kills.VERBS)
  if part == "stops":
    from tests.faults import stops

    return stops.stop(stops.Runs(base / "runs"), seed, *sizes)
  if part == "fuzz":
    from tests.faults import readers

    return [fuzz.run(readers.readers(), *sizes, seed)]
  from tests.faults import folders

  return folders.damage(seed, *sizes, base)


def main() -> int:
  """Runs the parts that are named, all by default; the status is 1 where a case was wrong."""
  parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
  parser.add_argument("parts", nargs="*", help=f"of {', '.join(SIZES)}; all by default")
  parser.add_argument("--small", action="store_true", help="the form of the slow tests")
  parser.add_argument("--every", action="store_true", help="`kills` at every file call: hours")
  parser.add_argument("--seed", type=int, default=0)
  options = parser.parse_args()
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


def counted() -> int:
  """Gives this command again to a process in which `kills` can count file calls."""
  source = str(pathlib.Path(__file__).with_name("calls.c"))
  with tempfile.TemporaryDirectory() as folder:
    library = os.path.join(folder, "calls.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    command = [sys.executable, "-m", "tests.faults", *sys.argv[1:]]
    return subprocess.call(command, env={**os.environ, "LD_PRELOAD": library})


if __name__ == "__main__":
  if "LD_PRELOAD" not in os.environ and shutil.which("cc"):
    sys.exit(counted())
  sys.exit(main())
