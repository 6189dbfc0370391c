"""The fault-injection suite in both forms, and that it finds what it looks for."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
  "form",
  [
    pytest.param(["--small"], marks=pytest.mark.slow, id="small"),
    pytest.param([], marks=pytest.mark.long, id="large"),
  ],
)
def test_no_fault_passes(form):
  done = subprocess.run(
    [sys.executable, "-m", "tests.faults", *form], cwd=ROOT, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
  last = done.stdout.splitlines()[-1]
  assert last.endswith(" 0 wrong"), last


# Readers that do what a reader must not do.
WRONG = """
import os, time
from tests.faults import fuzz
def silent(folder, data): assert False, "another content"
def raw(folder, data): return [][0]
def hangs(folder, data): time.sleep(60)
def crashes(folder, data): os.abort()
def hungry(folder, data): bytearray(1 << 40)
fuzz.HANGS = 1.0
judges = (lambda folder, data: fuzz.UNJUDGED, silent, raw, hangs, crashes, hungry)
readers = [fuzz.Reader(judge.__name__, [b"x"], judge) for judge in judges]
found = fuzz.run(readers, 12, 0)
print(found.outcomes[fuzz.UNJUDGED], found.outcomes["wrong"], found.outcomes.total())
print(*found.wrong, sep="\\n")
"""


def test_what_is_silent_raw_hung_or_dead_is_found(tmp_path):
  command, env = [sys.executable, "-c", WRONG], {**os.environ, "TMPDIR": str(tmp_path)}
  done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
  numbers, *wrong = done.stdout.splitlines()
  assert numbers == "2 10 12", done.stdout + done.stderr
  first = [line.split(": ", 3)[2:] for line in wrong[:5]]
  assert [words[0] for words in first] == [
    "AssertionError",
    "IndexError",
    "hung",
    "the process died (-6)",
    "MemoryError",
  ]
