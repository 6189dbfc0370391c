"""The modes of `main`: train, evaluate, predict."""

import logging
import os
from typing import Any

from as2jax.config import check, jobs
from as2jax.runtime import registry
from as2jax.runtime.devices import huge_pages_advice
from as2jax.runtime.errors import InputError

REPORT = "as2jax.report.make:automatic"  # writes the page of a run that has ended

log = logging.getLogger(__name__)


def run(config: Any, workdir: str) -> str:
  """Runs the mode that the config names; returns what to print."""
  workdir = prepare(config, workdir)
  if config.mode == "predict":
    from as2jax.inference import reevaluate

    return f"ranked candidates: {reevaluate.predict(config, workdir)}"
  from as2jax.evaluation import results

  return results.table(content(config, workdir), workdir)


def content(config: Any, workdir: str) -> dict[str, Any]:
  """Trains, or evaluates the run in `workdir` again; returns the content of `results.json`.

  Args:
    workdir: as `prepare` returns it.

  """
  if config.mode == "train":
    from as2jax.training import loop

    done = loop.train_and_evaluate(config, workdir)
    if config.log.report:
      registry.resolve(REPORT)(workdir)
    return done
  from as2jax.inference import reevaluate

  return reevaluate.reevaluate(config, workdir)


def _about(config: Any) -> list[str]:
  """Says what is trained, and by what."""
  if config.mode != "train":
    return []
  text = config.model.name
  if config.epochs and registry.has_parameters(config.model.name):
    text += f", trained by {config.loss.name}"
    if config.loss.name == "in_batch_softmax":
      text += " (the other answers of a batch are the wrong ones)"
  if config.evaluation.task == "retrieve":
    text += ", evaluated over one pool of answers"
  return [text]


def prepare(config: Any, workdir: str) -> str:
  """Checks the config, then the device and the cache of programs; returns the absolute folder."""
  if not workdir:
    raise InputError("--workdir is missing: name the run's folder, --workdir=runs/x")
  check.check(config)
  if config.evaluation.data and config.mode != "evaluate":
    raise InputError(
      f"evaluation.data = {config.evaluation.data!r} is for a finished run: "
      "as2jax evaluate RUN --data=NAME:SPLIT"
    )
  # Only now: they take a second and more, which a mistake above should not cost.
  from as2jax.runtime import compile_cache, cpu_compiler, devices, processes

  cpu_compiler.check(devices.backend())
  if processes.first():
    log.info("%s: %s", workdir, "; ".join([*_about(config), devices.description()]))
    if warning := devices.unused():
      log.info(warning)
  if devices.backend() == "cpu" and (advice := huge_pages_advice(os.environ)):
    log.info(advice)
  compile_cache.use(config)
  workdir = workdir if "://" in workdir else os.path.abspath(workdir)  # as Orbax wants it
  jobs.keep_folders(workdir, config)
  return workdir
