"""Collects the scalars of training steps and writes their means to the log."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from as2jax.runtime.errors import InputError
from as2jax.training.build import Components
from as2jax.training.checkpoints import Checkpoints
from as2jax.training.run_folder import MetricsLog

TAKEN = "taken"  # beside a step's scalars: whether each seed has taken the step


class StepLog:
  """The scalars of the steps since the last row of the log; stops the run at a non-finite loss.

  A step's scalars are read after the next step has been dispatched, so that reading costs no time.
  This also bounds how far a host runs ahead: step i is dispatched when step i - 2 has ended on all
  devices. So no process is more than two steps ahead of another, and the point at which all agree
  to end (see `preemption`) is at most that far away.
  """

  def __init__(
    self,
    components: Components,
    checkpoints: Checkpoints,
    seeds: Sequence[int],
    metrics_log: MetricsLog,
    unwritten: Sequence[dict[str, Sequence[float]]] = (),
  ):
    self.components, self.checkpoints = components, checkpoints
    self.seeds, self.log = seeds, metrics_log
    self.pending: tuple | None = None
    self.values = [
      {name: np.asarray(value, np.float32) for name, value in row.items()} for row in unwritten
    ]
    self.began = time.monotonic()

  def add(
    self, step: int, scalars: Any, questions: Sequence[set[int]], padding: Sequence[float]
  ) -> None:
    """Adds a step's scalars `[seed]`; questions and share of padding are those of its batch, by seed.

    A seed without questions does not take the step: it has stopped, or its epoch has fewer steps.

    Raises:
      InputError: the loss of the step before is not finite.

    """
    self._read()
    self.pending = (step, {**scalars, "padding": np.asarray(padding, np.float32)}, questions)

  def _read(self) -> None:
    if self.pending is None:
      return
    step, scalars, questions = self.pending
    values = {name: np.asarray(v) for name, v in scalars.items()}
    values[TAKEN] = np.asarray([bool(its) for its in questions])
    for i, seed in enumerate(self.seeds):
      finite = np.isfinite(values["loss"][i]) and np.isfinite(values["gradient_norm"][i])
      if questions[i] and not finite:
        ids = [self.components.train_questions()[q].id for q in sorted(questions[i])]
        raise InputError(
          f"step {step}, seed {seed}: the loss is {values['loss'][i]} (gradient norm "
          f"{values['gradient_norm'][i]}) on questions {ids}. "
          f"{self.checkpoints.last_finite()} Lower optimizer.rate or look at these questions."
        )
    self.values.append(values)
    self.pending = None

  def unwritten(self) -> list[dict[str, list[float]]]:
    """The steps since the last row, as JSON data from which a `StepLog` can go on."""
    self._read()
    return [{name: value.tolist() for name, value in row.items()} for row in self.values]

  def write(self, step: int) -> dict[str, float]:
    """Writes a row per seed, with means since the last row; returns the first that has a loss.

    The mean of a scalar is over the steps that have it and that the seed has taken. A seed that has
    taken none has `seconds_per_step` alone.
    """
    self._read()
    seconds = time.monotonic() - self.began
    rows = []
    for i, seed in enumerate(self.seeds):
      taken = [values for values in self.values if TAKEN not in values or values[TAKEN][i]]
      # A run that goes on may log other names than the steps before it did: log.gradient_norms.
      names = dict.fromkeys(name for values in taken for name in values if name != TAKEN)
      row = {
        name: float(np.mean([values[name][i] for values in taken if name in values]))
        for name in names
      }
      row["seconds_per_step"] = seconds / len(self.values)
      self.log.write(seed, step, row)
      rows.append(row)
    self.values, self.began = [], time.monotonic()
    self.log.flush()
    return next(row for row in rows if "loss" in row)
