"""python -m launch.benchmarks.start --rows=20000000: the start of a run on large data, to its first batch.

Writes the arrays of so many synthetic question-candidate pairs by the writers that a run uses, then
opens them as a run does, plans an epoch and cuts one host's part of the first batch, in a process of
its own. Prints seconds, processor seconds and the most memory of that process: in all, and what is its
own (without pages of the mapped files, which the system takes back when it needs them).
"""

import argparse
import json
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

from as2jax.data.batches.batcher import fit_batcher
from as2jax.data.batches.examples import ExampleTable
from as2jax.data.text.token_table import TableWriter, open_table
from as2jax.runtime import array_folder

CHUNK = 1 << 20
CANDIDATES = 356  # a question, as ASNQ has
LONGEST = 128
SHARDS = 16  # of a batch; this host makes one


def write(folder: pathlib.Path, rows: int) -> int:
  """The arrays of `rows` pairs; returns the bytes on disk."""
  rng = np.random.default_rng(0)
  lengths = rng.integers(16, 60, rows, dtype=np.int64)
  offsets = np.concatenate([[0], np.cumsum(lengths)])
  total = int(offsets[-1])
  totals = {"offsets": rows + 1, "word_offsets": rows + 1}
  totals |= dict.fromkeys(("ids", "type", "role"), total)
  totals |= dict.fromkeys(("word_start", "word_length", "word_role", "word_form"), 0)
  (folder / "units").mkdir(parents=True)
  with TableWriter(totals, folder / "units") as writer:
    writer.add(offsets=offsets, word_offsets=np.zeros(rows + 1, np.int64))
    for start in range(0, total, CHUNK):
      size = min(CHUNK, total - start)
      writer.add(
        ids=rng.integers(5, 30000, size, dtype=np.int32),
        type=np.zeros(size, np.int8),
        role=np.ones(size, np.int8),
      )
    writer.finish(forms=(), truncated_units=0, lost_by_role=(0, 0, 0, 0), blank_units=0)
  numbers = np.arange(rows, dtype=np.int32)
  examples = {
    "members": numbers[:, None],
    "labels": (numbers % CANDIDATES == 3).astype(np.int8)[:, None],
    "question": numbers // CANDIDATES,
    "answer": numbers,
    "candidate": numbers % CANDIDATES,
  }
  (folder / "examples").mkdir()
  shapes = {name: (values.shape, values.dtype) for name, values in examples.items()}
  with array_folder.Writer(folder / "examples", shapes) as writer:
    for name, values in examples.items():
      writer.write(name, values)
    writer.finish(units=str(folder / "units"))
  return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def start(folder: pathlib.Path) -> dict[str, float]:
  """Opens, plans, and cuts the first batch; what it took."""
  import jax  # a run has it, too

  jax.config.update("jax_platforms", "cpu")
  began, spent = time.monotonic(), time.process_time()
  units = open_table(folder / "units")
  arrays, _ = array_folder.open_arrays(folder / "examples")
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
  options = parser.parse_args()
  found = start(options.folder) if options.folder else measured(options.rows)
  print(json.dumps(found))


if __name__ == "__main__":
  main()
