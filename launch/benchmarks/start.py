"""python -m launch.benchmarks.start --rows=20000000: the start of a run on large data, to its first batch.

Writes the arrays of so many synthetic question-candidate pairs by the writers that a run uses, then
opens them as a run does, plans an epoch and cuts one host's part of the first batch, in a process of
its own. Prints seconds, processor seconds and the most memory of that process: in all, and what is its
own (without pages of the mapped files, which the system takes back when it needs them).

With `--command` nothing is made that a user has not: a file in ASNQ's form, which `as2jax train` reads,
prepares, tokenises and keeps; then the same command in another folder, to its first step.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from as2jax.data.batches.batcher import fit_batcher
from as2jax.data.batches.examples import ExampleTable
from as2jax.data.text.token_table import create_arrays, table_of
from as2jax.runtime import cache
from as2jax.training import progress

CHUNK = 1 << 20
CANDIDATES = 356  # a question, as ASNQ has
LONGEST = 128
SHARDS = 16  # of a batch; this host makes one
SENTENCES = 50_000  # different ones of a file in ASNQ's form: a run tokenises each once


def write(folder: pathlib.Path, rows: int) -> int:
  """The arrays of `rows` pairs; returns the bytes on disk."""
  rng = np.random.default_rng(0)
  lengths = rng.integers(16, 60, rows, dtype=np.int64)
  offsets = np.concatenate([[0], np.cumsum(lengths)])
  total = int(offsets[-1])

  def build_units(writer: cache.Writer) -> dict[str, Any]:
    create_arrays(writer, total, rows, 0)
    writer.write("offsets", offsets)
    writer.write("word_offsets", np.zeros(rows + 1, np.int64))
    for start in range(0, total, CHUNK):
      size = min(CHUNK, total - start)
      writer.write("ids", rng.integers(5, 30000, size, dtype=np.int32))
      writer.write("type", np.zeros(size, np.int8))
      writer.write("role", np.ones(size, np.int8))
    return {"forms": (), "truncated_units": 0, "lost_by_role": (0, 0, 0, 0), "blank_units": 0}

  cache.write(folder / "units", build_units)
  numbers = np.arange(rows, dtype=np.int32)
  examples = {
    "members": numbers[:, None],
    "labels": (numbers % CANDIDATES == 3).astype(np.int8)[:, None],
    "question": numbers // CANDIDATES,
    "answer": numbers,
    "candidate": numbers % CANDIDATES,
  }

  def build_examples(writer: cache.Writer) -> dict[str, Any]:
    for name, values in examples.items():
      writer.create(name, values.shape, values.dtype)
      writer.write(name, values)
    return {}

  cache.write(folder / "examples", build_examples)
  return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def start(folder: pathlib.Path) -> dict[str, float]:
  """Opens, plans, and cuts the first batch; what it took."""
  import jax  # a run has it, too

  jax.config.update("jax_platforms", "cpu")
  began, spent = time.monotonic(), time.process_time()
  units = table_of(cache.read(folder / "units"))
  arrays = cache.read(folder / "examples").arrays
  batcher = fit_batcher(
    units,
    ExampleTable(**arrays),
    sampler="paper",
    examples_per_batch=512,
    rows=0,
    row_lengths=(LONGEST,),
    packed=True,
    shards=SHARDS,
    accumulate=1,
    buckets=2,
  )
  opened = time.process_time()
  plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
  planned = time.process_time()
  batcher.batch(plan, 0, only=(3,))
  memory = dict(
    line.split(":") for line in pathlib.Path("/proc/self/status").read_text().splitlines()
  )
  own = sum(int(memory[key].split()[0]) for key in ("RssAnon", "RssShmem"))
  return {
    "rows": len(batcher.examples),
    "steps": len(plan),
    "seconds": time.monotonic() - began,
    "processor_seconds": time.process_time() - spent,
    "of_opening": opened - spent,
    "of_planning": planned - opened,
    "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    "own_gib_at_the_end": own / 2**20,
  }


def write_source(folder: pathlib.Path, rows: int) -> int:
  """Files in ASNQ's form, the sentences drawn from `SENTENCES` different ones; bytes of the first."""
  rng = np.random.default_rng(0)
  words = np.asarray([f"{a}{b}{c}" for a in "bdgklm" for b in "aeiou" for c in "nrstxz"])
  pool = [" ".join(rng.choice(words, rng.integers(8, 30))) for _ in range(SENTENCES)]
  (folder / "asnq").mkdir(parents=True)
  for split, count in (("train", rows), ("dev", 40)):
    chosen = rng.integers(0, len(pool), count)
    with (folder / "asnq" / f"asnq-{split}.csv").open("w") as file:
      file.write("question,answer,label\n")
      for i, sentence in enumerate(chosen.tolist()):
        question, place = divmod(i, CANDIDATES)
        file.write(f"{split} question {question},{pool[sentence]},{int(place == 3)}\n")
  return (folder / "asnq" / "asnq-train.csv").stat().st_size


def run_to_first_step(folder: pathlib.Path, name: str, seconds: float = 7200) -> dict[str, float]:
  """Starts `as2jax train` and ends it after its first step; what it took until then."""
  command = [sys.executable, "-m", "as2jax", "train", "asnq_tanda:minilm", "-o", str(folder / name)]
  # The data set with context: of ASNQ itself the counts must be the published ones.
  for change in (
    "data.name=asnq_context",
    "batch.examples=32",
    "log.seconds=0",
    "log.report=false",
    "log.steps=1",
  ):
    command += ["--set", change]
  env = {**os.environ, "AS2JAX_DATA": str(folder), "AS2JAX_CACHE": str(folder / "cache")}
  env["JAX_PLATFORMS"] = "cpu"
  began = time.monotonic()
  with (folder / f"{name}.txt").open("w") as log:
    process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
  try:
    while progress.read_status(folder / name).get("step", 0) < 1:
      if process.poll() is not None or time.monotonic() - began > seconds:
        raise RuntimeError((folder / f"{name}.txt").read_text()[-2000:])
      time.sleep(0.2)
    figures = {"seconds": time.monotonic() - began, **_of_process(process.pid)}
  finally:
    process.kill()
    process.wait()
  return figures


def _of_process(pid: int) -> dict[str, float]:
  """Processor seconds, most memory and bytes read of a process that is there."""
  place = pathlib.Path("/proc", str(pid))
  fields = (place / "stat").read_text().rpartition(")")[2].split()
  memory = dict(line.split(":") for line in (place / "status").read_text().splitlines())
  read = dict(line.split(":") for line in (place / "io").read_text().splitlines())
  return {
    "processor_seconds": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
    "peak_gib": int(memory["VmHWM"].split()[0]) / 2**20,
    "own_gib": int(memory["RssAnon"].split()[0]) / 2**20,
    "gib_read": int(read["rchar"]) / 2**30,
  }


def by_command(rows: int) -> dict[str, float]:
  """Two starts of a run on a file of so many rows: the second finds what the first has kept."""
  folder = pathlib.Path(tempfile.mkdtemp())
  try:
    source = write_source(folder, rows)
    first = run_to_first_step(folder, "first")
    size = sum(path.stat().st_size for path in (folder / "cache").rglob("*") if path.is_file())
    figures = {"rows": rows, "gib_source": source / 2**30, "gib_on_disk": size / 2**30}
    figures |= {f"first_{name}": value for name, value in first.items()}
    return figures | run_to_first_step(folder, "second")
  finally:
    shutil.rmtree(folder)


def measured(rows: int) -> dict[str, float]:
  """Writes, then starts in another process; removes what was written."""
  folder = pathlib.Path(tempfile.mkdtemp())
  try:
    size = write(folder, rows)
    command = [sys.executable, "-m", "launch.benchmarks.start", f"--folder={folder}"]
    said = subprocess.check_output(command, text=True)
    return {"gib_on_disk": size / 2**30, **json.loads(said)}
  finally:
    shutil.rmtree(folder)


def main() -> None:
  """Prints the figures as JSON."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--rows", type=int, default=20_000_000)
  parser.add_argument("--folder", type=pathlib.Path, help="starts on what was written there")
  parser.add_argument("--command", action="store_true", help="by `as2jax train`, from a file")
  options = parser.parse_args()
  if options.folder:
    figures = start(options.folder)
  else:
    figures = (by_command if options.command else measured)(options.rows)
  print(json.dumps(figures))


if __name__ == "__main__":
  main()
