"""The modes of `main`: train, evaluate, predict."""

from typing import Any

from as2jax import compilation, rank, results
from as2jax.errors import InputError
from as2jax.train import train_and_evaluate


def run(config: Any, workdir: str) -> str:
  """Runs the mode that the config names; returns what to print."""
  if not workdir:
    raise InputError("--workdir is missing: name the run's folder, --workdir=runs/x")
  compilation.use_cache(config)
  if config.mode == "train":
    return results.table(train_and_evaluate(config, workdir))
  if config.mode == "evaluate":
    return results.table(rank.evaluate_run(config, workdir))
  if config.mode == "predict":
    return f"ranked candidates: {rank.predict(config, workdir)}"
  raise InputError(f"mode = {config.mode!r}: use train, evaluate or predict")
