"""Our side of the benchmark: the project's own train and predict step, on a CPU's cores or one chip."""

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from as2jax.data.batches.prefetch import prefetch
from as2jax.evaluation.predict import make_predict_step
from as2jax.layers.transformer import is_transformer
from as2jax.runtime import registry, sharding
from as2jax.training import optimizers
from as2jax.training import state as states
from as2jax.training.step import make_train_step
from launch.benchmarks.workload import Load, Workload, batch_load


def matmul_peak(dtype: str) -> float:
  """FLOP/s of a large square matrix product, jitted: the best of some repetitions."""
  size = 2048 if jax.default_backend() == "cpu" else 8192
  a = jnp.full((size, size), 0.5, dtype)
  product = jax.jit(lambda x, y: x @ y)
  product(a, a).block_until_ready()
  seconds = []
  for _ in range(12):
    began = time.perf_counter()
    product(a, a).block_until_ready()
    seconds.append(time.perf_counter() - began)
  return 2 * size**3 / min(seconds)


def _mesh(encoder: Any, batches: Sequence[Any], training: bool) -> jax.sharding.Mesh:
  """As a run has it: a device a shard; of a single shard, a CPU's cores share a transformer's rows."""
  here = jax.devices()
  shapes = [batch.tokens.ids.shape for batch in batches]  # [accumulate, shard, row, position]
  shards, positions = shapes[0][1], max(rows * length for *_, rows, length in shapes)
  if shards == 1 and here[0].platform == "cpu" and is_transformer(encoder):
    cores = sharding.cores_worth(positions) if training else len(here)
    return sharding.make_mesh(rows=min(cores, len(here)), devices=here[:cores])
  return sharding.make_mesh(devices=here[:shards])


class Training:
  """Steps of `seeds` seeds at once through epochs, prefetched as in a run."""

  def __init__(self, work: Workload, seeds: int = 1):
    self.work, self.whole, self.compile_seconds = work, work.whole, 0.0
    self.name = "as2jax" if seeds == 1 else f"as2jax, {seeds} seeds"
    self.seeds, settings = tuple(range(seeds)), work.settings
    encoder = registry.build(registry.ENCODERS, settings["encoder"], "encoder")
    self.model = registry.build(registry.MODELS, settings["model"], "model", encoder=encoder)
    self.batches = work.shapes()
    self.mesh = _mesh(encoder, self.batches, training=settings["system"] not in PREDICTING)
    self._build(settings)
    self._stream: Iterator | None = None

  def _create(self, optimizer: Any, multipliers: Any) -> Any:
    return states.create(
      self.model,
      jax.tree.map(lambda x: x[0], self.batches[0]),  # one micro-batch, as the model sees it
      seeds=self.seeds,
      pretrained=self.work.weights,
      lr_multipliers=multipliers,
      optimizer=optimizer,
      mesh=self.mesh,
    )

  def _build(self, settings: Any) -> None:
    o = settings["optimizer"]
    loss = registry.build(registry.LOSSES, settings["loss"], "loss")
    rate = optimizers.schedule(o["schedule"], rate=o["rate"], warmup=o["warmup"], epochs=1.0)
    optimizer = optimizers.from_config(o)
    self.state = self._create(optimizer, [tuple(pair) for pair in o["lr_multipliers"]])
    self.function = make_train_step(
      self.model, loss, optimizer, rate, mesh=self.mesh, state=self.state, seeds=len(self.seeds)
    )

  def place(self, *batches: Any) -> Any:
    """One batch for each seed, or one for all, on the device."""
    batches = batches * (len(self.seeds) // len(batches))
    return sharding.place(jax.tree.map(lambda *x: np.stack(x), *batches), self.mesh)

  def step(self, placed: Any) -> Any:
    """One step; gives what the step gives beside the state (`loss` and other scalars)."""
    n = len(self.seeds)
    progress = np.full(n, 0.5, np.float32)  # beyond the warm-up: the rate is not 0
    self.state, scalars = self.function(
      self.state, placed, np.asarray(self.seeds, np.uint32), progress, np.ones(n, bool)
    )
    return scalars

  def params(self) -> tuple[dict, dict]:
    """Parameters and `batch_stats` of the first seed now, on the host."""
    first = lambda tree: jax.tree.map(lambda x: np.asarray(x[0]), tree)
    return first(self.state.params), first((self.state.mutables or {}).get("batch_stats", {}))

  def warm_up(self) -> None:
    """Compiles every shape; `compile_seconds` is what the first calls took beyond later ones."""
    for batch in self.batches:
      placed, seconds = self.place(batch), []
      for _ in range(3):
        began = time.perf_counter()
        jax.block_until_ready(self.step(placed))
        seconds.append(time.perf_counter() - began)
      self.compile_seconds += seconds[0] - min(seconds[1:])

  def description(self) -> dict:
    """How it ran."""
    return {
      "compile_seconds": round(self.compile_seconds, 2),
      "programs": self.function._cache_size(),
      "backend": jax.default_backend(),
      "devices": self.mesh.size,
      "dtype": self.work.settings["encoder"].get("dtype", "float32"),
      "jax": jax.__version__,
      "shapes": sorted(str(b.tokens.ids.shape[1:]) for b in self.batches),
    }

  def _items(self) -> Iterator[tuple[Any, Load]]:
    for number in itertools.count(1):
      epochs = [self.work.epoch(number, seed) for seed in self.seeds]

      def item(i, epochs=epochs):
        batches = [make(i) for _, make in epochs]
        load = sum((batch_load(self.work.settings, batch) for batch in batches), Load())
        return self.place(*batches), load

      yield from prefetch(item, range(epochs[0][0]))

  def block(self, seconds: float) -> tuple[Load, float]:
    """Runs for about `seconds`, at least one step: the work done and the time it took."""
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


class Encoding(Training):
  """Encodes sentences as a prediction does."""

  method, output = "encode", "units"

  def _build(self, settings: Any) -> None:
    self.state = self._create(optimizers.no_optimizer(), ())
    self.variables = states.ranking_variables(self.state)
    self.function = make_predict_step(self.model, self.method, mesh=self.mesh, seeds=1)

  def place(self, *batches: Any) -> Any:
    """One batch on the device."""
    return sharding.place_predict(batches[0], self.mesh)

  def step(self, placed: Any) -> Any:
    """The vectors of a batch's units, on the host, `[seed, shard, unit, d]`."""
    return np.asarray(getattr(self.function(self.variables, placed), self.output))


class Scoring(Encoding):
  """Scores pairs as a prediction does: `[seed, shard, example]` on the host."""

  method, output = "__call__", "scores"


PREDICTING = {"encode": Encoding, "score": Scoring}


def side(work: Workload, seeds: int = 1) -> Training:
  """Our side of a workload."""
  predicting = PREDICTING.get(work.settings["system"])
  return predicting(work) if predicting else Training(work, seeds)
