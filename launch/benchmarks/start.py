"""The start of `as2jax train` on a large file in ASNQ's form, to its first step: the first, and the second.

The first prepares, tokenises and keeps; the second, in another folder, finds what the first has kept.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

import numpy as np

from as2jax.runtime.errors import InputError

CANDIDATES = 356  # a question, as ASNQ has
SENTENCES = 50_000  # different ones: a run tokenises each once


def write_source(folder: pathlib.Path, pairs: int) -> None:
  """Write train and dev in ASNQ's form, the sentences drawn from `SENTENCES` different ones."""
  rng = np.random.default_rng(0)
  words = np.asarray([f"{a}{b}{c}" for a in "bdgklm" for b in "aeiou" for c in "nrstxz"])
  pool = [" ".join(rng.choice(words, rng.integers(8, 30))) for _ in range(SENTENCES)]
  (folder / "asnq").mkdir(parents=True)
  for split, count in (("train", pairs), ("dev", 40)):
    chosen = rng.integers(0, len(pool), count)
    with (folder / "asnq" / f"asnq-{split}.csv").open("w") as file:
      file.write("question,answer,label\n")
      for i, sentence in enumerate(chosen.tolist()):
        question, place = divmod(i, CANDIDATES)
        file.write(f"{split} question {question},{pool[sentence]},{int(place == 3)}\n")


def own_gib(pid: int) -> float:
  """Return a process's own memory in GiB, without pages of files; zero where `/proc` does not tell it (not Linux)."""
  path = pathlib.Path(f"/proc/{pid}/status")
  found = (
    re.search(r"^RssAnon:\s*(\d+) kB", path.read_text(), re.MULTILINE) if path.exists() else None
  )
  return int(found[1]) / 2**20 if found else 0.0


def free_port() -> int:
  """Return a port of this machine that nothing listens on."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return free.getsockname()[1]


def environment(cache: pathlib.Path) -> dict[str, str]:
  """Return the environment of a process on CPUs that keeps its derived files in `cache`."""
  return {**os.environ, "AS2JAX_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}


def to_first_step(
  job: Sequence[str], place: pathlib.Path, env: Mapping[str, str]
) -> dict[str, float]:
  """Start `as2jax train` and end it after its first step; return seconds and its own GiB at most.

  `speed` is the seconds to the end of the step; `first epoch begins` those until the untrained
  model is evaluated on dev. The run's folder is `place`, its log `place`.txt.
  """
  command = [sys.executable, "-m", "as2jax", "train", *job, "-o", str(place)]
  for change in ("log.seconds=0", "log.steps=1", "log.report=false"):
    command += ["--set", change]
  began, printed = time.monotonic(), place.with_suffix(".txt")
  found = {"gib": 0.0}
  with printed.open("w") as log:
    process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
  try:
    steps = place / "metrics.jsonl"
    while not steps.exists() or '"loss"' not in steps.read_text():
      if process.poll() is not None:
        raise InputError(f"no first step: {printed.read_text()[-2000:]}")
      if steps.exists():
        found.setdefault("first epoch begins", time.monotonic() - began)
      found["gib"] = max(found["gib"], own_gib(process.pid))
      time.sleep(0.2)
    return {"speed": time.monotonic() - began, **found}
  finally:
    process.kill()
    process.wait()


def run(pairs: int) -> dict[str, float]:
  """Start twice on a file of so many pairs; the `speed` is that of the second start."""
  with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    write_source(folder, pairs)
    # The data set with context: of ASNQ itself the counts must be the published ones.
    job = ["asnq_tanda:minilm", "--set", "data.name=asnq_context", "--set", "batch.examples=32"]
    env = {**environment(folder / "cache"), "AS2JAX_DATA": str(folder)}
    first = to_first_step(job, folder / "first", env)
    second = to_first_step(job, folder / "second", env)
    return {**second, "first": first["speed"], "first_gib": first["gib"], "pairs": pairs}
