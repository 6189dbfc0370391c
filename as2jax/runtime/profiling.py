"""A profiler trace of a few training steps, for `--profile`."""

import logging
import pathlib
import shutil
import tempfile
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

  Args:
    workdir: the run's folder; the trace goes to `profile/` in it.

  """

  def __init__(self, workdir: epath.PathLike):
    global _wanted
    self.folder = epath.Path(workdir) / "profile"
    self._wanted, self._seen, _wanted = _wanted, 0, 0
    self._local = ""

  def after_step(self, step: int, result: Any) -> None:
    """Begins or ends the trace; only then it waits for `result`, the outputs of the step."""
    if not self._wanted:
      return
    self._seen += 1
    if self._seen == WARM_UP:
      import jax  # here, so that `main` may look at its flags first

      jax.block_until_ready(result)
      self._local = tempfile.mkdtemp(prefix="as2jax-profile-")
      log.info("tracing %d steps from step %d on", self._wanted, step + 1)
      jax.profiler.start_trace(self._local)
    elif self._seen == WARM_UP + self._wanted:
      self.close(step, result)

  def close(self, step: int, result: Any) -> None:
    """Ends the trace, also where training ended before its last step."""
    if self._local:
      import jax

      jax.block_until_ready(result)
      jax.profiler.stop_trace()
      # The profiler writes to local folders; the run's may be gs://.
      for path in pathlib.Path(self._local).rglob("*.*"):
        target = self.folder / path.relative_to(self._local)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
      shutil.rmtree(self._local)
      log.info(
        "traced to step %d: %s. To look: pip install xprof; xprof --logdir=%s; or open its "
        "trace.json.gz at ui.perfetto.dev",
        step,
        self.folder,
        self.folder,
      )
    elif self._wanted:
      first = WARM_UP + 1
      log.warning("--profile: the training ended before its step %d: nothing was traced", first)
    self._local, self._wanted = "", 0
