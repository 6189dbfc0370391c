"""A machine: its devices (used, unused, asked for in vain), memory, and what makes CPUs fast.

Without huge pages a CPU step spends a fifth of its time on page faults. glibc reads its tunables when a
process begins: they are set for child processes, and a process without them says how to get them.
"""

import contextlib
import glob
import os
import pathlib
import platform
import resource
import sys
from collections.abc import Mapping

from as2jax.runtime.errors import InputError

# Files that show a device, and the extra whose plugin of jax uses it.
DRIVERS = {
  "NVIDIA GPU": (("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/dxg"), "cuda12"),
  "TPU": (("/dev/accel*",), "tpu"),
}
MOST_CORES = 4  # that are devices: each holds the parameters and what the optimizer keeps of them
TUNABLE = "glibc.malloc.hugetlb=1"


def backend() -> str:
  """Returns the platform that jax computes on; InputError where $JAX_PLATFORMS has no device here."""
  import jax

  try:
    return jax.default_backend()
  except (RuntimeError, AssertionError) as error:  # jax asserts that a plugin has registered itself
    why = " ".join(str(error).split()).partition(" (set JAX_PLATFORMS")[0]
    raise InputError(
      f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS')}: no such device can be used here "
      f"({why or 'its plugin of jax failed'}); unset it to compute on what there is, or check the "
      "driver and jax's plugin: pip install 'as2jax[cuda12]' (cuda13, tpu)"
    ) from error


def cores() -> int:
  """Returns the number of cores that this process may use."""
  if hasattr(os, "sched_getaffinity"):  # Linux: what a scheduler or taskset leaves us
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def use_cores() -> None:
  """Makes each core, up to `MOST_CORES`, a device, unless the user chose or devices are in use."""
  flags = os.environ.get("XLA_FLAGS", "")
  if "JAX_NUM_CPU_DEVICES" in os.environ or "host_platform_device_count" in flags:
    return
  import jax

  with contextlib.suppress(RuntimeError):  # devices are in use
    jax.config.update("jax_num_cpu_devices", min(cores(), MOST_CORES))


def description() -> str:
  """Describes the devices that are used: `2 × NVIDIA H100 80GB HBM3`."""
  import jax

  devices = jax.devices()
  if devices[0].platform == "cpu":
    return f"CPU ({processor()}, {os.cpu_count()} cores)"
  return processor() if len(devices) == 1 else f"{len(devices)} × {processor()}"


def unused() -> str:
  """Warns where an accelerator is here and jax computes on the CPU; "" elsewhere."""
  if backend() != "cpu":
    return ""
  asked = os.environ.get("JAX_PLATFORMS")
  for name, (files, extra) in DRIVERS.items():
    if any(map(glob.glob, files)):
      how = f"pip install 'as2jax[{extra}]' adds what jax needs"
      if asked:
        how = f"JAX_PLATFORMS={asked} asks for that"
      return f"warning: this machine has a {name}, but jax computes on the CPU: {how}"
  return ""


def processor() -> str:
  """Returns the name of the accelerator, or of the CPU, that jax computes on."""
  import jax

  if jax.default_backend() != "cpu":
    return jax.devices()[0].device_kind
  with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
    for line in file:
      if line.startswith("model name"):
        return line.partition(":")[2].strip()
  return platform.machine()


def memory() -> int:
  """Returns the bytes of memory of this machine, or of the container."""
  sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
  for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
    with contextlib.suppress(OSError, ValueError):  # no such file; or it says "max"
      sizes.append(int(pathlib.Path(file).read_text()))
  return min(sizes)


def peak_memory() -> int:
  """Returns the peak memory in bytes: of one local device, or of this process on CPU."""
  import jax

  peaks = []
  for device in jax.local_devices():
    peaks.append((device.memory_stats() or {}).get("peak_bytes_in_use", 0))
  unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, by its manual pages
  return max(peaks) or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def huge_pages_environment(current: Mapping[str, str]) -> dict[str, str]:
  """Returns the environment for a child process: `current` and huge pages.

  It stays as it is off glibc, where the user tunes malloc already, or says AS2JAX_ALLOCATOR=off.
  """
  tuned = any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in current)
  if tuned or current.get("AS2JAX_ALLOCATOR") == "off" or platform.libc_ver()[0] != "glibc":
    return dict(current)
  return {**current, "GLIBC_TUNABLES": TUNABLE}


def huge_pages_advice(current: Mapping[str, str]) -> str:
  """Says in one line how to get huge pages; "" where there is nothing to be gained."""
  if huge_pages_environment(current) == dict(current):
    return ""
  return (
    "CPU steps take about a fifth less time with huge pages: start with "
    f"GLIBC_TUNABLES={TUNABLE} in the environment (AS2JAX_ALLOCATOR=off: without this line)"
  )
