"""The fault-injection suite: `python -m tests.faults` (large) or `… --small` (a minute).

It stops runs by signals, flips bits in checkpoints and caches, damages files of runs, encoders, exports,
indexes and sweeps, and gives damaged files to every reader. It prints totals, and each case that was silent, raw, hung or not the
same to the bit; the status is 1 where there is any.
"""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The test modules' imports, as pytest's `pythonpath` has them.
for folder in ("", "data", "data/readers", "data/text", "encoders", "models"):
  sys.path.insert(1, str(ROOT / "tests" / folder))
# Before jax is imported; as in `conftest.py`.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault(
  "JAX_COMPILATION_CACHE_DIR", os.environ.get("AS2JAX_TEST_CACHE") or str(ROOT / ".jax_cache")
)

from tests.faults import suite  # noqa: E402

if __name__ == "__main__":
  sys.exit(suite.main())
