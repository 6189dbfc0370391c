"""Our side: the project's own training and prediction steps, on a CPU's cores or one chip."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from as2jax.data.batches.prefetch import prefetch
from as2jax.evaluation.predict import make_predict_step
from as2jax.runtime import registry, sharding
from as2jax.training import optimizers
from as2jax.training import state as states
from as2jax.training.step import make_train_step
from launch.benchmarks.workload import Load, Workload


def matmul_peak(dtype: str) -> float:
  """Return the FLOP/s of a large square matrix product, the best of some repetitions."""
  size = 2048 if jax.default_backend() == "cpu" else 8192
  a = jnp.full((size, size), 0.5, dtype)
  product = jax.jit(lambda x, y: x @ y)
  seconds = []
  for _ in range(13):  # the first compiles
    began = time.perf_counter()
    product(a, a).block_until_ready()
    seconds.append(time.perf_counter() - began)
  return 2 * size**3 / min(seconds)


class JaxSide:
  """Steps through epochs, prefetched as in a run: training, encoding of sentences, or scoring of pairs."""

  def __init__(self, work: Workload):
    self.work, settings = work, work.settings
    encoder = registry.build(registry.ENCODERS, settings["encoder"], "encoder")
    self.model = registry.build(registry.MODELS, settings["model"], "model", encoder=encoder)
    self.batches, self.whole = work.first()
    self.mesh = self._mesh()
    self._stream: Iterator | None = None
    o = settings["optimizer"]
    optimizer = optimizers.from_config(o) if work.trained else optax.identity()
    self.state = states.create(
      self.model,
      jax.tree.map(lambda x: x[0], self.batches[0]),  # one micro-batch, as the model sees it
      seeds=(0,),
      pretrained=work.weights,
      lr_multipliers=o["lr_multipliers"] if work.trained else (),
      optimizer=optimizer,
      mesh=self.mesh,
    )
    if work.trained:
      loss = registry.build(registry.LOSSES, settings["loss"], "loss")
      rate = optimizers.schedule(o["schedule"], rate=o["rate"], warmup=o["warmup"], epochs=1.0)
      self.function = make_train_step(
        self.model, loss, optimizer, rate, mesh=self.mesh, state=self.state, seeds=1
      )
    else:
      method = "encode" if settings["system"] == "encode" else "__call__"
      self.function = make_predict_step(self.model, method, mesh=self.mesh, seeds=1)

  def _mesh(self) -> jax.sharding.Mesh:
    """Return a run's mesh: a CPU's cores share the rows of its one shard."""
    here = jax.devices()
    if here[0].platform != "cpu":
      return sharding.make_mesh(devices=here[:1])
    positions = max(batch.tokens.ids.size for batch in self.batches)
    cores = sharding.cores_worth(positions) if self.work.trained else len(here)
    return sharding.make_mesh(rows=min(cores, len(here)), devices=here[:cores])

  def place(self, batch: Any) -> Any:
    """Put a batch on the device."""
    if self.work.trained:
      return sharding.place(jax.tree.map(lambda x: np.stack([x]), batch), self.mesh)
    return sharding.place(batch, self.mesh, spec=sharding.PREDICTED)

  def arguments(self, placed: Any) -> tuple:
    """Return what the step's function takes; the rate is that of the middle of an epoch."""
    if not self.work.trained:
      return states.ranking_variables(self.state), placed
    progress = np.full(1, 0.5, np.float32)
    return self.state, placed, np.zeros(1, np.uint32), progress, np.ones(1, bool)

  def step(self, placed: Any) -> Any:
    """Take one step; return its loss, or vectors `[1, shard, unit, d]` or scores on the host."""
    output = self.function(*self.arguments(placed))
    if not self.work.trained:
      return np.asarray(output.units if self.work.settings["system"] == "encode" else output.scores)
    self.state, scalars = output
    return scalars["loss"]

  def warm_up(self) -> None:
    """Compile every shape."""
    for batch in self.batches * 3:
      jax.block_until_ready(self.step(self.place(batch)))

  def _items(self) -> Iterator[tuple[Any, Load]]:
    for number in itertools.count(1):
      count, make = self.work.epoch(number)

      def item(i, make=make):
        batch = make(i)
        return self.place(batch), self.work.load(batch)

      yield from prefetch(item, range(count))

  def block(self, seconds: float) -> tuple[Load, float]:
    """Run for about `seconds`, at least one step; return the work done and the time it took."""
    self._stream = self._stream or self._items()
    done, before = Load(), None
    began = time.perf_counter()
    while before is None or time.perf_counter() - began < seconds:
      placed, load = next(self._stream)
      after = self.step(placed)
      jax.block_until_ready(before)  # one step ahead of the device, no more
      done, before = done + load, after
    jax.block_until_ready(before)
    return done, time.perf_counter() - began
