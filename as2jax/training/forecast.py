"""How long a run will take on this machine, said before it begins.

From its arithmetic and a short measurement of the device's matrix products. It is of transformers: a
training step takes 6 floating-point operations for each parameter in a matrix and each token
position (2 forward, 4 backward), and reaches about half of the device's matrix peak.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from as2jax.config.words import MINILM
from as2jax.data.batches.batcher import Batcher, Plan
from as2jax.training.progress_bar import duration

SHARE = 0.5  # of the matrix peak that a step was seen to reach
LONG = 600.0  # seconds from which on a run is told of
MINILM_WEIGHTS = 6 * 12 * 384**2  # as `weights` gives it, without a pooler
LEAST = 2e10  # FLOP/s that any core reaches: for a run that is short even so nothing is measured


def forecast(config: Any, batcher: Batcher, plan: Plan, pretrained: Mapping[str, Any]) -> str:
  """One line for a long run: its time, and what would be shorter; "" for any other.

  Args:
    plan: of one epoch.
    pretrained: the encoder's arrays, by parameter path.

  """
  total = flops(batcher, plan, pretrained) * config.epochs * len(config.seeds)
  if total < LONG * SHARE * LEAST:
    return ""
  seconds = total / (SHARE * peak(config.encoder.get("dtype")))
  if seconds < LONG:
    return ""
  return (
    f"this will take about {duration(seconds)} on this machine (at most {config.epochs} epochs of "
    f"{len(plan)} steps, {len(config.seeds)} seed{'s'[: len(config.seeds) - 1]}; early stopping may "
    "end it before). "
    f"Shorter: {shorter(config, weights(pretrained))}"
  )


def flops(batcher: Batcher, plan: Plan, pretrained: Mapping[str, Any]) -> float:
  """Floating-point operations of one epoch of training."""
  positions = float(np.dot(plan.rows, plan.row_length)) * batcher.shards * batcher.accumulate
  return 6.0 * weights(pretrained) * positions


def weights(pretrained: Mapping[str, Any]) -> int:
  """Numbers in the matrices that every token is multiplied with: those outside the embeddings."""
  return sum(
    value.size for path, value in pretrained.items() if value.ndim > 1 and "embeddings" not in path
  )


def shorter(config: Any, size: int) -> str:
  """What makes the run shorter, as words of its job or a setting; `size` as `weights` gives it."""
  words = []
  if config.encoder.get("pretrained", MINILM) != MINILM and size > 1.2 * MINILM_WEIGHTS:
    words.append("minilm")
  if config.batch.sampler == "paper":
    words.append("grouped")
  if words:
    return (
      f"the word{'s' if len(words) > 1 else ''} {','.join(words)} after the job's name and a colon"
    )
  return "--set epochs=1, or --set data.train_fraction=0.1"


def peak(dtype: str | None, size: int = 1536) -> float:
  """FLOP/s of matrix products on the first device, the best of a few."""
  import jax
  import jax.numpy as jnp

  matrix = jnp.ones((size, size), dtype or "float32")
  product = jax.jit(lambda a: a @ a)
  product(matrix).block_until_ready()
  best = np.inf
  for _ in range(4):
    began = time.perf_counter()
    product(matrix).block_until_ready()
    best = min(best, time.perf_counter() - began)
  # A product on one core of a CPU takes all of them.
  return 2.0 * size**3 / best * (1 if jax.default_backend() == "cpu" else jax.device_count())
