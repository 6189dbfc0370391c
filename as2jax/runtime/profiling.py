"""A profiler trace of a few training steps, for `--profile`."""

import logging
from typing import Any

from etils import epath

WARM_UP = 5  # steps before the first that is traced: they compile
log = logging.getLogger(__name__)
_wanted = 0


def want(steps: int) -> None:
  """Sets how many steps the next run traces; 0 for none."""
  global _wanted
  _wanted = steps


class Trace:
  """Traces the number of steps that `want` set, once a process; call `after_step` each step.

  `workdir` is the run's folder, a local one; the trace goes to `profile/` in it.
  """

  def __init__(self, workdir: epath.PathLike):
    global _wanted
    self.folder = epath.Path(workdir) / "profile"
    self._steps, _wanted = _wanted, 0
    self._passed, self._begun = 0, False

  def after_step(self, step: int, result: Any) -> None:
    """Begins or ends the trace; only then it waits for `result`, the outputs of the step."""
    self._passed += 1
    if self._steps and self._passed == WARM_UP:
      import jax  # here, so that `main` may look at its flags first

      jax.block_until_ready(result)
      log.info("tracing %d steps from step %d on", self._steps, step + 1)
      jax.profiler.start_trace(str(self.folder))
      self._begun = True
    elif self._passed == WARM_UP + self._steps:
      self.close(step, result)

  def close(self, step: int, result: Any) -> None:
    """Ends the trace, also where training ended before its last step."""
    if self._begun:
      import jax

      jax.block_until_ready(result)
      jax.profiler.stop_trace()
      log.info("traced to step %d: pip install xprof; xprof --logdir=%s", step, self.folder)
      self._begun = False
    elif self._steps and self._passed < WARM_UP:
      self._steps = 0  # nor are those of further seeds
      log.warning("--profile: the training ended before step %d: nothing was traced", WARM_UP + 1)
