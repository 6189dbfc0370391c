"""How soon a process is ready: to a first ranking, a warm model, a service that answers, a first training step.

Each block starts processes anew. `kept`: the compiled programs are those of a process before it; `cold`: none are. `start`
trains on a large file in ASNQ's form, twice in two folders: the first prepares, tokenises and keeps, the second finds that.
"""

import functools
import importlib.util
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from as2jax.config import words
from as2jax.encoders.hub import resolve
from as2jax.runtime.errors import InputError

CANDIDATES = ["A glacier cave is formed within the ice.", "Ice is frozen water."]
QUESTION = "how are glacier caves formed"
ASNQ = 356  # candidates of a question, as there
SENTENCES = 50_000  # different ones: a run tokenises each once
# The programs of processes: what they do between two marks is a phase.
MARKS = "import sys, time\nmarks = [time.perf_counter()]\nmark = lambda: marks.append(time.perf_counter())\n"
OURS = f"""{MARKS}
import as2jax
ranker = as2jax.load(sys.argv[1])
mark()
ranker.rank({QUESTION!r}, {CANDIDATES!r})
mark()
if sys.argv[2:]:
  ranker.warm_up()
  mark()
print(*marks)
"""
THEIRS = f"""{MARKS}
import sentence_transformers
model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")
mark()
question, *candidates = model.encode([{QUESTION!r}, *{CANDIDATES!r}], normalize_embeddings=True)
[question @ one for one in candidates]
mark()
print(*marks)
"""


def write_source(folder: pathlib.Path, pairs: int) -> None:
  """Write train and dev in ASNQ's form, the sentences drawn from `SENTENCES` different ones."""
  rng = np.random.default_rng(0)
  made = np.asarray([f"{a}{b}{c}" for a in "bdgklm" for b in "aeiou" for c in "nrstxz"])
  pool = [" ".join(rng.choice(made, rng.integers(8, 30))) for _ in range(SENTENCES)]
  (folder / "asnq").mkdir(parents=True)
  for split, count in (("train", pairs), ("dev", 40)):
    chosen = rng.integers(0, len(pool), count)
    with (folder / "asnq" / f"asnq-{split}.csv").open("w") as file:
      file.write("question,answer,label\n")
      for i, sentence in enumerate(chosen.tolist()):
        question, place = divmod(i, ASNQ)
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


def marks(program: str, *arguments: str, cache: pathlib.Path) -> list[float]:
  """Run a program in a process of its own; return the seconds of its phases."""
  command = [sys.executable, "-c", program, *arguments]
  printed = subprocess.run(command, env=environment(cache), check=True, capture_output=True)
  times = [float(word) for word in printed.stdout.split()]
  return [late - early for early, late in zip(times[:-1], times[1:], strict=True)]


def loaded(program: str, cache: pathlib.Path, source: str) -> dict[str, float]:
  """Return the seconds in which a program imports, loads a model, and ranks for the first time."""
  load, rank = marks(program, source, cache=cache)
  return {"speed": load + rank, "load": load, "first rank": rank}


def warmed_up(cache: pathlib.Path, source: str) -> dict[str, float]:
  """Return the seconds of `warm_up` behind a first `rank`."""
  return {"speed": marks(OURS, source, "warm_up", cache=cache)[-1]}


def as_process(command: Sequence[str], cache: pathlib.Path) -> dict[str, float]:
  """Return the seconds of a whole process."""
  began = time.monotonic()
  subprocess.run(command, env=environment(cache), check=True, capture_output=True)
  return {"speed": time.monotonic() - began}


def ranked(cache: pathlib.Path, source: str) -> dict[str, float]:
  """Return the seconds of `as2jax rank` of two candidates."""
  with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "asked.jsonl"
    file.write_text(json.dumps({"question": QUESTION, "candidates": CANDIDATES}) + "\n")
    command = [sys.executable, "-m", "as2jax", "rank", source, str(file)]
    return as_process([*command, "-o", f"{folder}/ranked.csv"], cache)


def ranked_by_them(cache: pathlib.Path, source: str) -> dict[str, float]:
  """Return the seconds of a process that does the same by sentence-transformers."""
  return as_process([sys.executable, "-c", THEIRS, source], cache)


def trained(cache: pathlib.Path, _: str) -> dict[str, float]:
  """Return the seconds from the command to the end of the first training step, on WikiQA."""
  job = ["wikiqa_triplet:minilm,grouped", "--set", "data.download=False"]
  with tempfile.TemporaryDirectory() as folder:
    return to_first_step(job, pathlib.Path(folder) / "run", environment(cache))


def served(cache: pathlib.Path, source: str) -> dict[str, float]:
  """Return the seconds from the command to the first answer; `all programs` until every program is compiled."""
  log, port, began = cache / "serve.txt", free_port(), time.monotonic()
  command = [sys.executable, "-m", "as2jax", "serve", source, "--port", f"{port}"]
  body = json.dumps({"query": QUESTION, "texts": CANDIDATES}).encode()
  place, header = f"http://127.0.0.1:{port}/rerank", {"content-type": "application/json"}
  request = urllib.request.Request(place, body, header)
  with log.open("w") as file:
    process = subprocess.Popen(command, env=environment(cache), stdout=file, stderr=file)
  try:
    answered = 0.0
    while "all programs are compiled" not in log.read_text():
      if process.poll() is not None:
        raise InputError(f"the service ended: {log.read_text()[-2000:]}")
      time.sleep(0.1)
      if not answered:
        try:
          urllib.request.urlopen(request).close()
        except OSError:
          continue
        answered = time.monotonic() - began
    return {"speed": answered, "all programs": time.monotonic() - began}
  finally:
    process.terminate()
    process.wait()


def start(pairs: int) -> dict[str, float]:
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


# Of each row: what ours does, and theirs.
SIDES: dict[str, tuple[Callable[[pathlib.Path, str], dict[str, float]], ...]] = {
  "ready-rank": (ranked, ranked_by_them),
  "ready-load": (functools.partial(loaded, OURS), functools.partial(loaded, THEIRS)),
  "ready-warm-up": (warmed_up,),
  "ready-serve": (served,),
  "ready-train": (trained,),
}


def run(row: str, blocks: int, measure: Callable, unit: str) -> dict[str, dict[str, Any]]:
  """Measure a row: ours with kept programs, ours without, and theirs where they have one."""
  source = str(resolve(words.MINILM))
  own, *others = SIDES[row]
  sides = ["kept", "cold"]
  if others and importlib.util.find_spec("sentence_transformers"):
    sides.insert(1, "sentence-transformers")
  with tempfile.TemporaryDirectory() as scratch:
    kept = pathlib.Path(scratch) / "kept"
    kept.mkdir()
    own(kept, source)

    def block(side: str, number: int) -> dict[str, float]:
      if side == "kept":
        return own(kept, source)
      if side == "sentence-transformers":
        return others[0](kept, source)
      empty = pathlib.Path(scratch) / f"empty-{number}"
      empty.mkdir()
      return own(empty, source)

    return measure({side: side for side in sides}, block, blocks, unit)
