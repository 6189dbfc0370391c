"""`status.json` in a run's folder: how far the run is, for whoever watches it from another machine."""

import logging
import time
from typing import Any

from etils import epath

from as2jax.runtime import checksums, processes
from as2jax.runtime.files import write_whole
from as2jax.training.run_folder import step_seconds

NAME = "status.json"
TRAINING, STOPPED, FAILED, FINISHED = "training", "stopped", "failed", "finished"

log = logging.getLogger(__name__)


class StatusFile:
  """Writes what is known of a run, at most every so many seconds; only the first process does.

  Its content: `state` (training, stopped, failed, finished), `phase` (None once finished), `step` of
  `steps`, `epoch`, `metric` with its `value` on the split that selects, `seconds_left`, `error`, `time`
  of writing, `began` (of the first start) and `goodput`; and a `checksum` of all that.
  """

  def __init__(self, workdir: epath.PathLike, seconds: float):
    self.workdir, self.path = epath.Path(workdir), epath.Path(workdir) / NAME
    self.seconds, self.last = seconds, -float("inf")
    before = read(workdir) if processes.first() else {}
    self.content: dict[str, Any] = {"state": TRAINING, "began": before.get("began", time.time())}
    self.in_steps = 0.0  # seconds, of steps that count: none that a restart has made again

  def begin(self) -> None:
    """Takes over the time of the steps that the log has: to be called after it was rolled back."""
    if processes.first():
      self.in_steps = step_seconds(self.workdir)

  def goodput(self) -> float:
    """Share of the time since the run's first start that was spent in steps which count."""
    return round(self.in_steps / max(time.time() - self.content["began"], 1e-9), 4)

  def write(self, *, now: bool = False, **values: Any) -> None:
    """Takes values over, and writes all of them if it is time or `now`."""
    self.content |= values
    if processes.first() and (now or time.monotonic() - self.last > self.seconds):
      self.last = time.monotonic()
      self.content |= {"time": time.time(), "goodput": self.goodput()}
      write_whole(self.path, checksums.sealed(self.content))


def read(workdir: epath.PathLike) -> dict[str, Any]:
  """The status of a run, {} where it has none, or (the log says so) one that is damaged."""
  path = epath.Path(workdir) / NAME
  try:
    return checksums.unsealed(path.read_text())
  except FileNotFoundError:
    return {}
  except ValueError as error:
    log.warning("%s is not what was written (%s): nothing is known of the run from it", path, error)
    return {}
