"""Tiny runs of every system whose training steps are compared with PyTorch's, and our side of them.

A case is built as a run is: config → `load` → batcher of the training split → state → step. Only
the parameters are drawn here, by path with numpy, so that no term vanishes and recorded numbers
depend on no generator of jax. Dropout is off, and the noise of latents is fixed.
"""

import contextlib
import dataclasses
import functools
import pathlib
import zlib
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tiny_systems

from as2jax.config import words
from as2jax.runtime import sharding
from as2jax.training import build, optimizers
from as2jax.training.step import make_train_step

# What is allowed between the two sides: of the loss, of a tensor's largest value.
LOSS, GRADIENT, PARAMETER = 1e-5, 2e-5, 2e-5
# Of Adam: a rate that moves a parameter by far more than the tolerance, and an ε under which a
# gradient that is rounding moves nothing (with 1e-8 its sign alone would move by the whole rate).
ADAM = {"rate": 5e-4, "eps": 1e-4}
TINY = (*tiny_systems.SYSTEMS, "dual_vae", "dual_gru")
CROSSING = {"cross_vae": "cross", "dual_vae": "dual", "dual_gru": "none"}
# What the recorded steps had and PyTorch's have, but a preset has not.
RECORDED = {"m2snet": {"overlap": "by_length", "standardise_overlap": False}}
REAL = "_minilm"  # behind the name of a system: with the real MiniLM
MINILM = tuple(system + REAL for system in ("crossencoder", "triplet", "siamese"))
GOLDEN = pathlib.Path(__file__).parent / "training" / "golden_steps.npz"


@dataclasses.dataclass(frozen=True, repr=False)
class Case:
  """A system with three batches of its training split.

  Attributes:
    system: one of `TINY`; config: its config.
    experiment: what `load` made of it, with `params` in place of pretrained arrays.
    params: every parameter by path.
    batches: `[accumulate, shard, …]` each; the last is the epoch's last, which is not full.
    progress: of each, as the loop counts it.

  """

  system: str
  config: Any
  experiment: build.Components
  params: dict[str, np.ndarray]
  batches: tuple[Any, ...]
  progress: tuple[float, ...]

  def rates(self) -> list[float]:
    """The learning rate of each step, from the definition of the schedules."""
    o, rates = self.config.optimizer, []
    for progress in self.progress:
      rate = o.rate * (min(progress / o.warmup, 1.0) if o.warmup else 1.0)
      if o.schedule == "linear":
        rate *= min((self.config.epochs - progress) / (self.config.epochs - o.warmup), 1.0)
      rates.append(rate)
    return rates


def config(name: str) -> Any:
  """The config of a case; optimiser, clipping and schedule are those of the system's preset."""
  system = name.removesuffix(REAL)
  job_config = tiny_systems.config("cross_vae" if system in CROSSING else system).unlock()
  job_config.batch.update({"shards": 2, "examples": 12})
  job_config.epochs = 2  # so that a linear schedule falls, and the weight of the KL rises
  job_config.optimizer.rate = 1.0  # AdaDelta's own
  if job_config.optimizer.name == "adam":
    job_config.optimizer.update(ADAM)
  if name != system:
    job_config.encoder.pretrained = words.MINILM
    job_config.optimizer.rate = 1e-4
  for section, keys in (
    (job_config.model, ("dropout",)),
    (job_config.encoder, ("hidden_dropout", "attention_dropout")),
  ):
    section.update({key: 0.0 for key in keys if key in section})
  job_config.model.update(RECORDED.get(system, {}))
  if system in CROSSING:
    job_config.model.crossing = CROSSING[system]
  return job_config.lock()


@functools.cache
def case(name: str) -> Case:
  """The case of a name in `TINY` or `MINILM`."""
  job_config = config(name)
  experiment = build.load(job_config)
  batcher = experiment.train_batcher()
  plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
  chosen = (1, 2, len(plan) - 1)
  batches = tuple(batcher.batch(plan, i) for i in chosen)
  shapes = jax.eval_shape(
    lambda batch: experiment.model.init(jax.random.key(0), batch, train=False)["params"],
    jax.tree.map(lambda x: x[0], batches[0]),
  )
  # The real encoder is kept, and all else drawn.
  kept = experiment.pretrained if name in MINILM else {}
  flat = {jax.tree_util.keystr(k, simple=True, separator="/"): v for k, v in _leaves(shapes)}
  params = {path: np.asarray(kept.get(path, draw(path, v.shape))) for path, v in flat.items()}
  progress = tuple(float(np.float32(plan.seen[i] / plan.seen[-1])) for i in chosen)
  experiment = dataclasses.replace(experiment, pretrained=params)
  return Case(name.removesuffix(REAL), job_config, experiment, params, batches, progress)


def _leaves(tree):
  return jax.tree_util.tree_leaves_with_path(tree)


def draw(path: str, shape: tuple[int, ...]) -> np.ndarray:
  """Values for a parameter, the same whatever else a model has."""
  if path in ("match_scale", "match_bias"):
    return np.asarray({"match_scale": 3.0, "match_bias": -0.5}[path], np.float32)
  rng = np.random.default_rng(zlib.crc32(path.encode()))
  spread = 0.5 if path.endswith("word") else 0.25
  if path.endswith("kernel"):
    spread = min(spread, shape[-2] ** -0.5)
  return (path.endswith("scale") + spread * rng.normal(size=shape)).astype(np.float32)


def noise(side: str, shape: tuple[int, ...]) -> np.ndarray:
  """The noise of a side's latents `[shard, example, z]`, the same at each step."""
  return np.random.default_rng(zlib.crc32(side.encode())).normal(size=shape).astype(np.float32)


@contextlib.contextmanager
def _fixed_noise():
  """While a step is traced: latents draw `noise`, the question's before the answer's."""
  calls = []

  def normal(key, shape):
    del key
    calls.append(("question", "answer")[len(calls) % 2])
    return jnp.asarray(noise(calls[-1], shape))

  with mock.patch.object(jax.random, "normal", normal):
    yield


def _recorder() -> optax.GradientTransformation:
  """Hands gradients on as they are, and keeps them in its state."""
  return optax.GradientTransformation(
    lambda params: jax.tree.map(jnp.zeros_like, params),
    lambda gradient, state, params=None: (gradient, gradient),
  )


def begin(case: Case, optimizer: optax.GradientTransformation, rate: Any) -> tuple:
  """Mesh, state and step of a case, over all devices."""
  mesh, experiment = sharding.make_mesh(), case.experiment
  first = jax.tree.map(lambda x: x[0], case.batches[0])
  state = experiment.fresh_state(first, (0,), optimizer, mesh)
  step = make_train_step(
    experiment.model, experiment.loss, optimizer, rate, mesh=mesh, state=state, seeds=1
  )
  return mesh, state, step


def ours(case: Case) -> dict[str, Any]:
  """Loss, rate and gradient of each step, parameters and running statistics after all of them.

  All of it by `make_train_step`, over all devices; the gradient as the optimiser gets it.
  """
  o = case.config.optimizer
  optimizer = optax.chain(_recorder(), optimizers.from_config(o))
  rate = optimizers.schedule(o.schedule, rate=o.rate, warmup=o.warmup, epochs=case.config.epochs)
  mesh, state, step = begin(case, optimizer, rate)
  assert not state.frozen and set(state.trainable) == set(case.params)
  host = lambda tree: {path: np.asarray(value)[0] for path, value in tree.items()}
  scalars, gradients = [], []
  for batch, progress in zip(case.batches, case.progress, strict=True):
    placed = sharding.place(jax.tree.map(lambda x: x[None], batch), mesh)
    arguments = np.zeros(1, np.uint32), np.asarray([progress], np.float32), np.ones(1, bool)
    with _fixed_noise():
      state, actual = step(state, placed, *arguments)
    scalars.append(host(actual))
    gradients.append(host(state.opt_state[0]))
  assert step._cache_size() == 1
  statistics = {
    jax.tree_util.keystr(path[1:], simple=True, separator="/"): value
    for path, value in _leaves(state.mutables)
  }
  return {
    "loss": np.asarray([s["loss"] for s in scalars]),
    "rate": np.asarray([s["learning_rate"] for s in scalars]),
    "gradients": gradients,
    "after": host(state.trainable),
    "statistics": host(statistics),
  }


def measured_by(path: str) -> str:
  """The parameter whose gradient a parameter's is measured by: its own.

  A softmax ignores what is added to all its scores, so the gradient of a key's bias is 0, and what
  there is of it is rounding: it is measured by that of the query's.
  """
  return path.replace("attention/key/bias", "attention/query/bias")


SAMPLE = 64  # elements of a tensor that a recording holds


def choose(case: Case, results: dict[str, Any]) -> list[np.ndarray]:
  """Elements of each tensor, by path, that a recording holds.

  They are spread over those with a gradient: most rows of a table have none.
  """
  index = []
  for path in sorted(case.params):
    moved = np.flatnonzero(sum(np.abs(g[path]) for g in results["gradients"]))
    chosen = np.unique(np.linspace(0, max(len(moved) - 1, 0), SAMPLE).astype(int))
    index.append(moved[chosen] if len(moved) else np.zeros(1, int))
  return index


def recording(
  case: Case, results: dict[str, Any], index: list[np.ndarray]
) -> dict[str, np.ndarray]:
  """What is kept of one side's results: of every tensor, norms and largest values, and a sample."""
  paths = sorted(case.params)
  return {
    "inputs": digest(case),
    "paths": np.asarray(paths),
    "counts": np.asarray([len(chosen) for chosen in index], np.int32),
    "index": np.concatenate(index).astype(np.int32),
    **{name: results[name] for name in ("loss", "rate")},
    **{f"statistics/{path}": value for path, value in results["statistics"].items()},
    "gradient": np.stack([sample(g, paths, index) for g in results["gradients"]]).astype(
      np.float32
    ),
    "after": sample(results["after"], paths, index).astype(np.float32),
    "norm": np.asarray([[np.linalg.norm(g[k]) for k in paths] for g in results["gradients"]]),
    "largest": np.asarray([[np.abs(g[k]).max() for k in paths] for g in results["gradients"]]),
    "largest_after": np.asarray([np.abs(results["after"][k]).max() for k in paths]),
  }


def sample(tensors: dict[str, np.ndarray], paths, index) -> np.ndarray:
  """The elements at an index of each tensor, one tensor after the other."""
  return np.concatenate([tensors[k].ravel()[i] for k, i in zip(paths, index, strict=True)])


def digest(case: Case) -> np.ndarray:
  """A checksum of parameters, tokens and labels: what a recording was made of."""
  actual = 0
  for path in sorted(case.params):
    actual = zlib.crc32(path.encode() + case.params[path].tobytes(), actual)
  for batch in case.batches:
    for part in (batch.tokens.ids, batch.units.length, batch.examples.labels):
      actual = zlib.crc32(np.ascontiguousarray(part, np.int32).tobytes(), actual)
  return np.asarray(actual, np.int64)


def golden(name: str) -> dict[str, np.ndarray]:
  """The recording of a case; the file holds all of them, each behind its name."""
  with np.load(GOLDEN) as kept:
    mine = [key for key in kept.files if key.startswith(f"{name}/")]
    return {key.removeprefix(f"{name}/"): kept[key] for key in mine}
