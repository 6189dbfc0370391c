"""Runs that die in the middle, as a killed process would."""

import pytest

from as2jax.training import loop


class Killed(Exception):
  """Stands for the end of a process."""


def interrupted(monkeypatch, config, folder, after):
  """Runs until `after` steps were taken, then dies: nothing is tidied."""
  add, count = loop.StepLog.add, [0]

  def stop(self, step, *rest):
    count[0] += 1
    if count[0] > after:
      raise Killed
    add(self, step, *rest)

  with monkeypatch.context() as patch:
    patch.setattr(loop.StepLog, "add", stop)
    with pytest.raises(Killed):
      loop.train_and_evaluate(config, folder)
