"""The rows of the log, and how far the host runs ahead of the devices."""

import numpy as np
import pytest

from as2jax.training.step_log import StepLog


class Scalar:
  """A value that a device is still computing; says when the host waits for it."""

  def __init__(self, step, read):
    self.step, self.read = step, read

  def __array__(self, dtype=None, copy=None):
    self.read.append(self.step)
    return np.asarray([float(self.step)], dtype)


class Log:
  def __init__(self):
    self.rows = []

  def write(self, seed, step, row):
    self.rows.append((seed, step, row.get("loss")))

  def flush(self):
    pass


def test_step_i_is_dispatched_when_step_i_minus_2_has_ended():
  read, log = [], Log()
  window = StepLog(None, None, [0], log)
  for step in range(1, 8):
    # Here `step` is dispatched.
    assert sorted(set(read)) == list(range(1, step - 1))
    scalars = {"loss": Scalar(step, read), "gradient_norm": Scalar(step, read)}
    window.add(step, scalars, [{0}], [step / 8])
  row = window.write(7)
  assert row["loss"] == 4.0 and max(read) == 7  # of the steps 1 to 7
  assert row["padding"] == 0.5  # likewise
  assert log.rows == [(0, 7, 4.0)]


@pytest.mark.parametrize("before", [True, False])
def test_a_run_goes_on_with_other_scalars(before):
  """`log.gradient_norms` may change when a run is resumed."""
  scalars = {"loss": np.ones(1), "gradient_norm": np.ones(1)}
  norms = {"gradient_norm/triplet": np.full(1, 3.0)}
  first = StepLog(None, None, [0], Log())
  first.add(1, scalars | (norms if before else {}), [{0}], [0.0])
  second = StepLog(None, None, [0], Log(), first.unwritten())
  second.add(2, scalars | ({} if before else norms), [{0}], [0.5])
  row = second.write(2)
  assert row["gradient_norm/triplet"] == 3.0 and row["padding"] == 0.25


def test_a_step_counts_for_the_seeds_that_take_it():
  """Seed 1 has an epoch of one step less, and seed 2 has stopped; the run is resumed in between."""
  losses = lambda *values: {"loss": np.asarray(values), "gradient_norm": np.ones(3)}
  first, log = StepLog(None, None, [0, 1, 2], Log()), Log()
  first.add(1, losses(1.0, 5.0, 9.0), [{0}, {0}, set()], [0.0] * 3)
  second = StepLog(None, None, [0, 1, 2], log, first.unwritten())
  second.add(2, losses(3.0, 0.0, 9.0), [{0}, set(), set()], [0.0] * 3)
  assert second.write(2)["loss"] == 2.0
  assert log.rows == [(0, 2, 2.0), (1, 2, 5.0), (2, 2, None)]
