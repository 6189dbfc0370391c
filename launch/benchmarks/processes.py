"""What `launch/benchmarks/benchmark.py` measures in other processes: peak memory, start to first step."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from as2jax.runtime import devices
from as2jax.runtime.errors import InputError
from launch.benchmarks import workload
from launch.benchmarks.workload import Workload

STEPS = 4
PATIENCE = 1800  # seconds until a start counts as failed


def measure(flags: argparse.Namespace, work: Workload, sides: Sequence[str]) -> dict[str, Any]:
  """Peak resident memory of each side alone; start to first step, compiling and compiled."""
  figures: dict[str, Any] = {}
  with tempfile.TemporaryDirectory(prefix="as2jax-benchmark-") as folder:
    file = str(pathlib.Path(folder) / "work.pkl")
    workload.save(file, work, batches=STEPS, weights="float32")
    how = {"seeds": flags.seeds, "fused": flags.fused_adam, "half": flags.autocast}
    for side in sides:
      command = [sys.executable, "-m", "launch.benchmarks.processes", side, file, json.dumps(how)]
      child = subprocess.run(command, capture_output=True, text=True, check=False)
      if child.returncode:
        raise InputError(f"{' '.join(command)} failed: {child.stderr[-500:]}")
      mib = json.loads(child.stdout.splitlines()[-1])["peak_mib"]
      figures[f"peak memory of {side} alone, MiB"] = round(mib)
    trained = work.settings["system"] in ("triplet", "crossencoder")
    if trained and not flags.prepared and not flags.shape:
      for name in ("cold", "compiled before"):
        figures[f"start to first step ({name}), s"] = round(_first_step(flags, folder, name), 1)
  return figures


def _first_step(flags: argparse.Namespace, folder: str, name: str) -> float:
  """Seconds from the start of `as2jax.main`, past evaluating dev, to its first row with a loss."""
  workdir = pathlib.Path(folder) / name.split()[0]
  words = (
    ["minilm"] + ["grouped"] * (flags.sampler == "grouped") + ["sample"] * (flags.data == "sample")
  )
  command = [
    sys.executable,
    "-m",
    "as2jax.main",
    f"--workdir={workdir}",
    f"--config=configs/wikiqa_{flags.system}.py:{','.join(words)}",
    "--config.log.steps=1",
    f"--config.encoder.pretrained={flags.encoder}",
    f"--config.encoder.dtype={flags.dtype}",
    f"--config.encoder.hidden_dropout={flags.dropout}",
    f"--config.encoder.attention_dropout={flags.dropout}",
    f"--config.batch.shards={flags.shards}",
    "--config.log.tensorboard=False",
    f"--config.compilation_cache={folder}/xla",
  ]
  began = time.monotonic()
  with open(f"{workdir}.log", "w+", encoding="utf-8") as log:
    with subprocess.Popen(command, stdout=log, stderr=log) as child:
      try:
        while time.monotonic() - began < PATIENCE and child.poll() is None:
          time.sleep(0.05)
          rows = workdir / "metrics.jsonl"
          if rows.exists() and any("loss" in json.loads(r) for r in rows.read_text().splitlines()):
            return time.monotonic() - began
      finally:
        child.kill()
    log.seek(0)
    raise InputError(f"{' '.join(command)} wrote no step: {log.read()[-500:]}")


def peak_memory(side: str, file: str, options: str) -> float:
  """Peak resident memory (MiB) of this process after a few steps of one side.

  Args:
    side: its name; file: of the workload.
    options: JSON of the seeds of ours that has several, and of PyTorch's `fused` and `half`.

  """
  how = json.loads(options)
  devices.use_cores()
  work = workload.load(file)
  if side.startswith("torch"):
    from launch.benchmarks import machine, torch_grouped, torch_side

    of = torch_side.side if side == "torch" else torch_grouped.Grouped
    runner = of(work, None, machine.cores(), how["fused"], how["half"])
    for examples in runner.plan(1)[:STEPS]:
      runner.step(examples)
  else:
    from launch.benchmarks import jax_side

    runner = jax_side.side(work, 1 if side == "as2jax" else how["seeds"])
    for _ in range(STEPS):
      runner.block(0)
  # Not getrusage: its peak outlives exec, so that a child would report its parent's.
  status = pathlib.Path("/proc/self/status")
  if not status.exists():
    raise InputError(
      "--processes reads the peak memory from /proc/self/status, which is absent here"
    )
  line = next(l for l in status.read_text().splitlines() if l.startswith("VmHWM:"))
  return int(line.split()[1]) / 1024


if __name__ == "__main__":
  print(json.dumps({"peak_mib": peak_memory(*sys.argv[1:])}))
