"""The modes of `main`: train, evaluate, predict."""

import logging
import os
from typing import Any

from as2jax.config import check
from as2jax.runtime.errors import InputError


def run(config: Any, workdir: str) -> str:
  """Runs the mode that the config names; returns what to print.

  Raises:
    InputError: anything that the user gave and that cannot be.

  """
  if not workdir:
    raise InputError("--workdir is missing: name the run's folder, --workdir=runs/x")
  check.check(config)
  if config.evaluation.data and config.mode != "evaluate":
    raise InputError(
      f"evaluation.data = {config.evaluation.data!r} is for a finished run: add --config.mode=evaluate"
    )
  # Only now: they take a second and more, which a mistake above should not cost.
  import jax

  from as2jax.evaluation import results
  from as2jax.inference import apply
  from as2jax.runtime import compile_cache, cpu_compiler, huge_pages
  from as2jax.training import loop

  cpu_compiler.check(jax.default_backend())
  if jax.default_backend() == "cpu" and (advice := huge_pages.advice(os.environ)):
    logging.getLogger(__name__).info(advice)
  compile_cache.use_cache(config)
  workdir = workdir if "://" in workdir else os.path.abspath(workdir)  # as Orbax wants it
  if config.mode == "train":
    return results.table(loop.train_and_evaluate(config, workdir), workdir)
  if config.mode == "evaluate":
    return results.table(apply.evaluate(config, workdir), workdir)
  return f"ranked candidates: {apply.predict(config, workdir)}"
