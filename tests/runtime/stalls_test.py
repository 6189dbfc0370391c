"""What a run says that makes no step, with a while of a second."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, time
from as2jax.runtime import preemption, stalls
stalls.AFTER, stalls.LOOK = 1.0, 0.02
stalls.watch()
if sys.argv[1] == "compiling":
  # What runs in a file of this name is taken for the compiler; to import it would take too long.
  code = "import time\\ntime.sleep(2)"
  exec(compile(code, "/site-packages/jax/_src/compiler.py", "exec"))
elif sys.argv[1] == "reading":
  from as2jax.data.batches.prefetch import prefetch
  list(prefetch(lambda i: time.sleep(2), range(1)))
elif sys.argv[1] == "stepping":
  for _ in range(40):
    preemption.due()
    time.sleep(0.05)
"""


@pytest.mark.parametrize(
  "where, words",
  [
    ("compiling", "it compiles a program"),
    ("reading", "it waits for the next batch to be read"),
    ("stepping", None),
  ],
)
def test_it_says_once_what_it_waits_for(where, words):
  process = subprocess.run(
    [sys.executable, "-c", PROGRAM, where], cwd=ROOT, capture_output=True, text=True, timeout=60
  )
  assert process.returncode == 0, process.stderr
  assert process.stderr == (f"as2jax: no step for 1 s: {words}\n" if words else "")
