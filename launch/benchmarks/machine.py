"""What a record says of its machine: processor, cores, and whether other processes kept it busy."""

import os
import pathlib
import platform
import re
import time

OTHERS = 0.1  # share of the cores beyond which other processes disturb a comparison
TICKS = 100.0  # of /proc/stat in a second, on every Linux


def cores() -> int:
  """Return the number of cores that this process may use."""
  return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
  """Return the name of this machine's accelerator, or of its processor."""
  import jax

  if jax.default_backend() != "cpu":
    return jax.devices()[0].device_kind
  file = pathlib.Path("/proc/cpuinfo")
  names = re.findall(r"model name\s*: (.+)", file.read_text()) if file.exists() else []
  return names[0].strip() if names else platform.machine()


class Others:
  """Measures what share of all cores other processes used since it was made."""

  def __init__(self):
    self._before = _used(), time.process_time(), time.monotonic()

  def busy(self) -> bool:
    """Tell whether that was so much that a ratio means nothing."""
    used, own, began = self._before
    seconds = max(time.monotonic() - began, 1e-9) * (os.cpu_count() or 1)
    return (_used() - used) - (time.process_time() - own) > OTHERS * seconds


def _used() -> float:
  """Return the seconds of all cores that were not idle since the machine's start; 0 if unknown."""
  file = pathlib.Path("/proc/stat")
  if not file.exists():
    return 0.0
  ticks = list(map(int, file.read_text().split("\n", 1)[0].split()[1:9]))
  return (sum(ticks) - ticks[3] - ticks[4]) / TICKS  # all but idle and waiting for disks
