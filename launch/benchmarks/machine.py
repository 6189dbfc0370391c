"""What a benchmark says of its machine: processor, cores, and how busy other processes kept it."""

import os
import pathlib
import platform
import re
import time

OTHERS = 0.1  # share of the cores beyond which other processes disturb a comparison
TICKS = 100.0  # of /proc/stat in a second, on every Linux


def cores() -> int:
  """How many threads each side computes with: the cores that this process may use."""
  return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
  """The model's name of this machine's processor, or of its accelerator."""
  import jax

  if jax.default_backend() != "cpu":
    return jax.devices()[0].device_kind
  file = pathlib.Path("/proc/cpuinfo")
  names = re.findall(r"model name\s*: (.+)", file.read_text()) if file.exists() else []
  return names[0].strip() if names else platform.processor() or platform.machine()


class Others:
  """Measures what share of all cores other processes used since it was made."""

  def __init__(self):
    self._before = _used(), time.process_time(), time.monotonic()

  def share(self) -> float:
    """Between 0 and 1; 0 where /proc/stat is absent."""
    used, own, began = self._before
    now = _used()
    if used is None or now is None:
      return 0.0
    seconds = max(time.monotonic() - began, 1e-9) * (os.cpu_count() or 1)
    return max((now - used) - (time.process_time() - own), 0.0) / seconds

  def busy(self) -> bool:
    """Whether that was so much that a ratio means nothing."""
    return self.share() > OTHERS


def _used() -> float | None:
  """Seconds of all cores that were not idle since the machine's start."""
  file = pathlib.Path("/proc/stat")
  if not file.exists():
    return None
  user, nice, system, _, _, irq, softirq, steal, *_ = map(
    int, file.read_text().split("\n", 1)[0].split()[1:]
  )
  return (user + nice + system + irq + softirq + steal) / TICKS
