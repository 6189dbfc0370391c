"""The fault-injection suite: `python -m tests.faults` (large) or `… --small` (a minute).

It stops runs by signals, kills commands at their file calls, flips bits in checkpoints and caches, damages
files of runs, encoders, exports, indexes and sweeps, and gives damaged files to every reader. It prints
totals, and each case that was silent, raw, hung or not the
same to the bit; the status is 1 where there is any.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

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
  sys.exit(suite.main())
