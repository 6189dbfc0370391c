"""Report what a config's steps take of chips that are not there (`as2jax lab compile`).

The real steps (training, prediction) are compiled for TPUs: memory, arithmetic, traffic, collectives, and an estimate
of the time. No weights and no data are read.
"""

from collections.abc import Iterator
from typing import Any

from as2jax.config import check
from as2jax.data.batches.samplers import WHOLE_QUESTIONS
from as2jax.experiments.compile import chips, compiled
from as2jax.experiments.compile.chips import GIB, Chip
from as2jax.experiments.compile.compiled import Measured
from as2jax.experiments.compile.program import summary
from as2jax.runtime import sharding
from as2jax.training.describe import describe

UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


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
  lines = [f"{step.name}: {step.needs / GIB:.2f} of {chip.hbm / GIB:.0f} GiB a {chip.name}"]
  if step.program is None:
    return f"{lines[0]}: DOES NOT FIT"
  sizes = ", ".join(f"{name} {size / GIB:.2f}" for name, size in step.memory.items())
  exchanged = ", ".join(
    f"{calls} × {kind}, {_short(size)}B in all"
    for kind, (calls, size) in summary(step.program.collectives).items()
  )
  lines += [
    f"  memory    {sizes} GiB",
    f"  work      {_short(step.flops)}FLOP in matrix products, {_short(step.xla_bytes)}B read and "
    "written (XLA's count: a loop's body once)",
    f"  between   {exchanged or 'no collectives'}",
  ]
  parts = step.seconds(chip)
  longest = max(parts, key=parts.get)
  lines.append(
    f"  time      at least {1000 * parts[longest]:.2f} ms, an estimate from the chip's "
    "peaks: " + ", ".join(f"{k} {1000 * v:.2f}" for k, v in parts.items()) + " ms"
  )
  if step.program.host_calls:
    lines.append(f"  host      takes part: {', '.join(sorted(set(step.program.host_calls)))}")
  if unknown := [turns for turns in step.program.loops if turns is None]:
    lines.append(f"  loops     {len(unknown)} whose end depends on data (counted as one turn)")
  return "\n".join(lines)


def fits(chip: Chip, step: Measured) -> bool:
  """Tell whether a step compiled and its memory is within that of the chip."""
  return step.program is not None and step.needs <= chip.hbm


def advice(config: Any, step: str, devices: int) -> list[str]:
  """Return overrides that make a step need less of a chip, those that change least first."""
  batch, encoder, overrides = config.batch, config.encoder, []
  if step != "train":
    if batch.predict_rows >= 2 * batch.shards:
      half = batch.predict_rows // batch.shards // 2 * batch.shards
      overrides.append(f"--set batch.predict_rows={half} (the same scores)")
  else:
    if "remat" in encoder and not encoder.remat:
      overrides.append(
        "--set encoder.remat=true (the same numbers; activations are computed again)"
      )
    rows = "rows" if batch.sampler in WHOLE_QUESTIONS else "examples"
    each = batch[rows] // batch.shards
    if each > 1:  # in as few equal parts as it divides into: others would be another step
      cut = next(n for n in range(2, each + 1) if each % n == 0)
      overrides.append(
        f"--set batch.{rows}={each // cut * batch.shards} "
        f"--set batch.accumulate={cut * batch.accumulate} (the same step in parts)"
      )
  if "dtype" in encoder and encoder.dtype == "float32":
    overrides.append("--set encoder.dtype=bfloat16 (rounds; parameters stay float32)")
  parts = min(devices // config.sharding.tensor, 4)
  if config.sharding.fsdp == 1 and parts > 1 and "remat" in encoder:
    overrides.append(f"--set sharding.fsdp={parts} (parameters and optimiser in parts)")
  return overrides


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
  fine = True
  for step in steps:
    print(report(chip, step), flush=True)
    if not fits(chip, step):
      fine = False
      overrides = advice(config, step.name, chips.count(topology))
      print(
        "  try       "
        + "\n            ".join(overrides or ["a chip with more memory, or a smaller model"])
      )
  return int(not fine)
