"""Report what a config's steps take of chips that are not there (`as2jax lab compile`).

The real steps (training, prediction) are compiled for TPUs: memory, traffic, collectives. No weights and no
data are read.
"""

from collections.abc import Iterator
from typing import Any

from as2jax.config import check
from as2jax.experiments.compile import chips, compiled
from as2jax.experiments.compile.chips import GIB, Chip
from as2jax.experiments.compile.compiled import Measured
from as2jax.experiments.compile.program import summary
from as2jax.runtime import sharding
from as2jax.training.describe import describe

UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
ADVICE = (
  "  try       --set encoder.remat=true, half of batch.rows or batch.examples with twice "
  "batch.accumulate, half of batch.predict_rows, sharding.fsdp over several chips"
)


def measure(config: Any, topology: str) -> tuple[Chip, Any, Iterator[Measured]]:
  """Return the chip, the config as scaled to the slice, and its steps, compiled as they are taken.

  Raises:
    InputError: see `chips.devices`, `describe`, `compiled.scaled`.

  """
  import jax

  jax.config.update("jax_platforms", "cpu")  # no device of this machine is needed, or taken
  chip, devices = chips.devices(topology)
  mesh = sharding.make_mesh(
    fsdp=config.sharding.fsdp, tensor=config.sharding.tensor, devices=devices
  )
  config = compiled.scaled(config, mesh.shape["data"] * mesh.shape["fsdp"])
  steps = compiled.steps(describe(config), mesh)
  return chip, config, (compiled.measure(name, trace, len(devices)) for name, trace in steps)


def report(chip: Chip, step: Measured) -> str:
  """Return what one step takes of a chip, in lines."""
  head = f"{step.name}: {step.needs / GIB:.2f} of {chip.hbm / GIB:.0f} GiB a {chip.name}"
  if step.program is None:
    return f"{head}: DOES NOT FIT"
  sizes = ", ".join(f"{name} {size / GIB:.2f}" for name, size in step.memory.items())
  exchanged = []
  for kind, (calls, size) in summary(step.program.collectives).items():
    exchanged.append(f"{calls} × {kind}, {_short(size)}B in all")
  lines = [
    head,
    f"  memory    {sizes} GiB",
    f"  traffic   {_short(step.xla_bytes)}B read and written (XLA's count: a loop's body once)",
    f"  between   {', '.join(exchanged) or 'no collectives'}",
  ]
  if step.program.host_calls:
    lines.append(f"  host      takes part: {', '.join(sorted(set(step.program.host_calls)))}")
  if unknown := step.program.loops.count(None):
    lines.append(f"  loops     {unknown} whose end depends on data (counted as one turn)")
  return "\n".join(lines)


def fits(chip: Chip, step: Measured) -> bool:
  """Tell whether a step compiled and its memory is within that of the chip."""
  return step.program is not None and step.needs <= chip.hbm


def _short(number: float) -> str:
  for size, letter in UNITS:
    if number >= size:
      return f"{number / size:.3g} {letter}"
  return f"{number:.3g} "


def run(config: Any, topology: str) -> int:
  """Print the report; return the exit status, 1 where a step does not fit."""
  check.check(config)
  chip, config, steps = measure(config, topology)
  batch = config.batch
  print(
    f"{topology}: batch.shards={batch.shards}, batch.examples={batch.examples}, "
    f"batch.rows={batch.rows}, batch.predict_rows={batch.predict_rows} (fixed work a chip)",
    flush=True,
  )
  status = 0
  for step in steps:
    print(report(chip, step), flush=True)
    if not fits(chip, step):
      status = 1
      print(ADVICE)
  return status
