"""Compiles the steps of a described run for devices that need not exist; measures them."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from as2jax.evaluation.predict import PAIRS, make_compare_step, make_predict_step
from as2jax.experiments.compile.chips import GIB, Chip
from as2jax.experiments.compile.flops import matrix_flops
from as2jax.experiments.compile.program import Program
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.training import optimizers
from as2jax.training import state as states
from as2jax.training.describe import Description
from as2jax.training.step import make_train_step


@dataclasses.dataclass(frozen=True)
class Measured:
  """One compiled step on one chip.

  Attributes:
    memory: bytes of arguments, outputs, aliased (outputs in an argument's place), temporaries and
      code; None where the compiler gave up because they do not fit.
    needs: bytes of the HBM in all, by the compiler's own message where it gave up.
    flops: of the matrix products, a chip's share.
    program: None where it does not fit.
    xla_bytes: read and written by XLA's own count, which counts the body of a loop once.

  """

  name: str
  memory: Mapping[str, float] | None
  needs: float
  flops: float
  program: Program | None
  xla_bytes: float = 0.0

  def seconds(self, chip: Chip) -> dict[str, float]:
    """The least time of each part of a step: arithmetic, memory, links (a roofline)."""
    links = sum(c.traffic for c in self.program.collectives)
    return {
      "arithmetic": self.flops / chip.peak,
      "memory": self.xla_bytes / chip.bandwidth,
      "links": links / chip.links,
    }


def scaled(config: Any, parts: int) -> Any:
  """`config` with at least one shard a part of the mesh: what a shard holds stays as it is.

  Raises:
    InputError: more shards than parts, which they cannot be dealt to evenly.

  """
  shards = config.batch.shards
  scaled_config = config.copy_and_resolve_references()
  if shards >= parts:
    return scaled_config
  if parts % shards:
    raise InputError(
      f"batch.shards = {shards} does not divide the {parts} parts of the mesh: set "
      "--config.batch.shards=1"
    )
  with scaled_config.unlocked():
    for key in ("examples", "rows", "predict_rows", "shards"):
      scaled_config.batch[key] = config.batch[key] * parts // shards
  return scaled_config


def mesh_of(config: Any, devices: list[Any]) -> jax.sharding.Mesh:
  """The mesh of a config over these devices."""
  return sharding.make_mesh(
    fsdp=config.sharding.fsdp, tensor=config.sharding.tensor, devices=devices
  )


def steps(parts: Description, mesh: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
  """The name of each step of an experiment, and a function that traces it.

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
  batcher = parts.train_batcher()
  shard = parts.batch(batcher)
  state = parts.state(shard, seeds, optimizer, mesh)
  variables = states.ranking_variables(state)

  def of_shards(x, front, place):
    shape = (*front, config.batch.shards, *x.shape[1:])
    return jax.ShapeDtypeStruct(shape, x.dtype, sharding=place)

  def train():
    batch = jax.tree.map(
      lambda x: of_shards(x, (n, config.batch.accumulate), sharding.batch_sharding(mesh)), shard
    )
    each = lambda kind: jax.ShapeDtypeStruct((n,), kind, sharding=every)
    step = make_train_step(model, parts.loss, optimizer, rate, mesh=mesh, state=state, seeds=n)
    return step.trace(state, batch, each(np.uint32), each(np.float32), each(np.bool_))

  layout = "sentences" if model.encodes else model.layout
  question = parts.predict_batcher(parts.dataset.splits["dev"], layout)
  asked = jax.tree.map(
    lambda x: of_shards(x, (1,), sharding.predict_sharding(mesh)), parts.batch(question)
  )
  predict_step = make_predict_step(
    model, "encode" if model.encodes else "__call__", mesh=mesh, seeds=n
  )

  def compare():
    width = jax.eval_shape(predict_step, variables, asked).units.shape[-1]
    vectors = jax.ShapeDtypeStruct((n, PAIRS, width), np.float32, sharding=every)
    return make_compare_step(model, mesh=mesh, seeds=n).trace(variables, (vectors, vectors))

  if parts.loss is not None and config.loss.name != "none":
    yield "train", train
  yield "predict", lambda: predict_step.trace(variables, asked)
  if model.encodes:
    yield "compare", compare


def measure(name: str, trace: Callable[[], Any], chips: int) -> Measured:
  """Compiles one step and measures it."""
  traced = trace()
  flops = matrix_flops(traced.jaxpr.jaxpr) / chips
  try:
    executable = traced.lower().compile()
  except jax.errors.JaxRuntimeError as error:
    needs = refused(str(error))
    if needs is None:
      raise
    return Measured(name, None, needs, flops, None)
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
  return Measured(name, memory, needs, flops, Program(executable.as_text(), chips), moved)


def refused(message: str) -> float | None:
  """The bytes that the compiler says it needed when it gave up for want of HBM; else None."""
  if "RESOURCE_EXHAUSTED" not in message:
    return None
  match = re.search(r"Used ([\d.]+)([KMGT]) of", message)
  units = {"K": 2**10, "M": 2**20, "G": GIB, "T": 2**40}
  return float(match[1]) * units[match[2]] if match else float("inf")
