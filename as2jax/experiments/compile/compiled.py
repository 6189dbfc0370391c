"""Compile the steps of a run for chips that are not there, and report what they take (`as2jax lab compile`).

The real steps (training, prediction) are compiled for TPUs: memory, traffic, collectives. No weights and no
data are read.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from as2jax.config import check
from as2jax.config.overrides import apply
from as2jax.evaluation.predict import PAIRS, make_predict_step
from as2jax.experiments.compile import chips
from as2jax.experiments.compile.chips import GIB, Chip
from as2jax.experiments.compile.program import Program
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.training import optimizers
from as2jax.training import state as states
from as2jax.training.describe import Description, describe
from as2jax.training.step import make_train_step

ADVICE = (
  "  try       --set encoder.remat=true, half of batch.rows or batch.examples with twice "
  "batch.accumulate, half of batch.predict_rows, sharding.fsdp over several chips"
)


class Measured(NamedTuple):
  """One compiled step on one chip, in bytes.

  Attributes:
    memory: of arguments, outputs, aliased, temporaries and code.
    needs: of the HBM in all; xla_bytes: read and written, with the body of a loop once.
    lacks: what the compiler said when it gave up for want of HBM; the rest is empty then.

  """

  name: str
  memory: Mapping[str, float] = {}
  needs: float = 0.0
  program: Program | None = None
  xla_bytes: float = 0.0
  lacks: str = ""


def scaled(config: Any, parts: int) -> Any:
  """Return `config` with a shard for each part of the mesh, its work as it is; InputError for more shards."""
  shards = config.batch.shards
  if shards >= parts:
    return config
  if parts % shards:
    raise InputError(
      f"batch.shards = {shards} does not divide the {parts} parts of the mesh: set "
      "batch.shards to 1"
    )
  keys = ("examples", "rows", "predict_rows", "shards")
  return apply(config, {f"batch.{key}": config.batch[key] * parts // shards for key in keys})


def steps(parts: Description, mesh: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
  """Yield the name of each step of an experiment, and a function that traces it.

  `train` is a step of training; `predict` encodes sentences, or scores examples; `compare` compares
  vectors, where the model encodes.
  """
  config, model = parts.config, parts.model
  sharding.check_shards(mesh, config.batch.shards)
  seeds = tuple(config.seeds) if config.seeds_parallel else tuple(config.seeds)[:1]
  n, every = len(seeds), sharding.replicated(mesh)
  o = config.optimizer
  optimizer = optimizers.from_config(o)
  rate = optimizers.schedule(o.schedule, rate=o.rate, warmup=o.warmup, epochs=config.epochs)
  shard = parts.batch(parts.train_batcher())
  state = parts.state(shard, seeds, optimizer, mesh)
  variables = states.ranking_variables(state)

  def of_shards(batch, front, place):

    def placed(x):
      shape = (*front, config.batch.shards, *x.shape[1:])
      return jax.ShapeDtypeStruct(shape, x.dtype, sharding=place)

    return jax.tree.map(placed, batch)

  def train():
    batch = of_shards(shard, (n, config.batch.accumulate), NamedSharding(mesh, sharding.BATCH))
    step = make_train_step(model, parts.loss, optimizer, rate, mesh=mesh, state=state, seeds=n)
    kinds = np.uint32, np.float32, np.bool_
    each = [jax.ShapeDtypeStruct((n,), kind, sharding=every) for kind in kinds]
    return step.trace(state, batch, *each)

  layout = "sentences" if model.encodes else model.layout
  question = parts.predict_batcher(parts.dataset.splits["dev"], layout)
  asked = of_shards(parts.batch(question), (1,), NamedSharding(mesh, sharding.PREDICTED))
  method = "encode" if model.encodes else "__call__"
  predict_step = make_predict_step(model, method, mesh=mesh, seeds=n)

  def compare():
    width = jax.eval_shape(predict_step, variables, asked).units.shape[-1]
    vectors = jax.ShapeDtypeStruct((n, PAIRS, width), np.float32, sharding=every)
    return make_predict_step(model, "compare", mesh=mesh, seeds=n).trace(
      variables, (vectors, vectors)
    )

  if parts.loss is not None and config.loss.name != "none":
    yield "train", train
  yield "predict", lambda: predict_step.trace(variables, asked)
  if model.encodes:
    yield "compare", compare


def measure(name: str, trace: Callable[[], Any]) -> Measured:
  """Compile one step and measure it."""
  try:
    executable = trace().lower().compile()
  except jax.errors.JaxRuntimeError as error:
    if "RESOURCE_EXHAUSTED" not in str(error):
      raise
    used = re.search(r"Used [\d.]+\w of [\d.]+\w", str(error))
    return Measured(name, lacks=used[0] if used else "out of memory")
  analysis = executable.memory_analysis()
  memory = {
    "arguments": analysis.argument_size_in_bytes,
    "outputs": analysis.output_size_in_bytes,
    "aliased": analysis.alias_size_in_bytes,
    "temporaries": analysis.temp_size_in_bytes,
    "code": analysis.generated_code_size_in_bytes,
  }
  needs = sum(memory.values()) - 2 * memory["aliased"]
  moved = executable.cost_analysis().get("bytes accessed", 0.0)
  return Measured(name, memory, needs, Program(executable.as_text()), moved)


def steps_of(config: Any, topology: str) -> tuple[Chip, Any, Iterator[Measured]]:
  """Return the chip, the config as scaled to the slice, and its steps, compiled as they are taken."""
  jax.config.update("jax_platforms", "cpu")  # no device of this machine is needed, or taken
  chip, devices = chips.devices(topology)
  mesh = sharding.make_mesh(
    fsdp=config.sharding.fsdp, tensor=config.sharding.tensor, devices=devices
  )
  config = scaled(config, mesh.shape["data"] * mesh.shape["fsdp"])
  compiled = (measure(name, trace) for name, trace in steps(describe(config), mesh))
  return chip, config, compiled


def report(chip: Chip, step: Measured) -> str:
  """Return what one step takes of a chip, in lines."""
  if step.lacks:
    return f"{step.name}: DOES NOT FIT a {chip.name} ({step.lacks})"
  head = f"{step.name}: {step.needs / GIB:.2f} of {chip.hbm / GIB:.0f} GiB a {chip.name}"
  sizes = ", ".join(f"{name} {size / GIB:.2f}" for name, size in step.memory.items())
  exchanged = []
  for kind, (calls, size) in step.program.collectives.items():
    exchanged.append(f"{calls} × {kind}, {size / 1e6:.1f} MB in all")
  lines = [
    head,
    f"  memory    {sizes} GiB",
    f"  traffic   {step.xla_bytes / 1e9:.3g} GB read and written (XLA's count: a loop's body once)",
    f"  between   {', '.join(exchanged) or 'no collectives'}",
  ]
  if step.program.host_calls:
    lines.append(f"  host      takes part: {', '.join(sorted(set(step.program.host_calls)))}")
  if unknown := step.program.loops.count(None):
    lines.append(f"  loops     {unknown} whose end depends on data (counted as one turn)")
  return "\n".join(lines)


def fits(chip: Chip, step: Measured) -> bool:
  """Tell whether a step compiled and its memory is within that of the chip."""
  return not step.lacks and step.needs <= chip.hbm


def run(config: Any, topology: str) -> int:
  """Print the report; return the exit status, 1 where a step does not fit."""
  check.check(config)
  chip, config, measured = steps_of(config, topology)
  batch = config.batch
  print(
    f"{topology}: batch.shards={batch.shards}, batch.examples={batch.examples}, "
    f"batch.rows={batch.rows}, batch.predict_rows={batch.predict_rows} (fixed work a chip)",
    flush=True,
  )
  status = 0
  for step in measured:
    print(report(chip, step), flush=True)
    if not fits(chip, step):
      status = 1
      print(ADVICE)
  return status
