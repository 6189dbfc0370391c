"""Compile the steps of a described run for devices that need not exist; measure them."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from as2jax.evaluation.predict import PAIRS, make_predict_step
from as2jax.experiments.compile.chips import GIB
from as2jax.experiments.compile.program import Program
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.training import optimizers
from as2jax.training import state as states
from as2jax.training.describe import Description
from as2jax.training.step import make_train_step


class Measured(NamedTuple):
  """One compiled step on one chip.

  Attributes:
    memory: bytes of arguments, outputs, aliased (outputs in an argument's place), temporaries and
      code; None where the compiler gave up because they do not fit.
    needs: bytes of the HBM in all, by the compiler's own message where it gave up.
    program: None where it does not fit.
    xla_bytes: read and written by XLA's own count, which counts the body of a loop once.

  """

  name: str
  memory: Mapping[str, float] | None
  needs: float
  program: Program | None
  xla_bytes: float = 0.0


def scaled(config: Any, parts: int) -> Any:
  """Return `config` with at least one shard a part of the mesh: what a shard holds stays as it is.

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
    """Return the shapes of the shards of a batch, from those of one."""

    def placed(x):
      shape = (*front, config.batch.shards, *x.shape[1:])
      return jax.ShapeDtypeStruct(shape, x.dtype, sharding=place)

    return jax.tree.map(placed, batch)

  def train():
    batch = of_shards(shard, (n, config.batch.accumulate), sharding.batch_sharding(mesh))
    step = make_train_step(model, parts.loss, optimizer, rate, mesh=mesh, state=state, seeds=n)
    each = []
    for kind in (np.uint32, np.float32, np.bool_):
      each.append(jax.ShapeDtypeStruct((n,), kind, sharding=every))
    return step.trace(state, batch, *each)

  layout = "sentences" if model.encodes else model.layout
  question = parts.predict_batcher(parts.dataset.splits["dev"], layout)
  asked = of_shards(parts.batch(question), (1,), sharding.predict_sharding(mesh))
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


def measure(name: str, trace: Callable[[], Any], chips: int) -> Measured:
  """Compile one step and measure it."""
  try:
    executable = trace().lower().compile()
  except jax.errors.JaxRuntimeError as error:
    needs = refused(str(error))
    if needs is None:
      raise
    return Measured(name, None, needs, None)
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
  return Measured(name, memory, needs, Program(executable.as_text(), chips), moved)


def refused(message: str) -> float | None:
  """Return the bytes that the compiler needed when it gave up for want of HBM; else None."""
  if "RESOURCE_EXHAUSTED" not in message:
    return None
  match = re.search(r"Used ([\d.]+)([KMGT]) of", message)
  units = {"K": 2**10, "M": 2**20, "G": GIB, "T": 2**40}
  return float(match[1]) * units[match[2]] if match else float("inf")
