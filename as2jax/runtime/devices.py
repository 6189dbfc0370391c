"""The devices of this machine: which are used, which are not, and which are asked for in vain."""

import glob
import os
import platform
import resource

from as2jax.runtime.errors import InputError

# Files that a driver makes, and the extra whose plugin of jax uses the device.
DRIVERS = {"NVIDIA GPU": ("/dev/nvidia[0-9]*", "cuda12"), "TPU": ("/dev/accel*", "tpu")}


def backend() -> str:
  """The platform that jax computes on: cpu, gpu, tpu.

  Raises:
    InputError: $JAX_PLATFORMS names one that is not here.

  """
  import jax

  try:
    return jax.default_backend()
  except (RuntimeError, AssertionError) as error:  # jax asserts that a plugin has registered itself
    wanted = os.environ.get("JAX_PLATFORMS", "")
    why = " ".join(str(error).split())[:200] or "jax has no plugin for it"
    raise InputError(
      f"JAX_PLATFORMS={wanted}: no such device can be used here ({why}); unset it to compute on what "
      "there is, or install its plugin: pip install 'as2jax[cuda12]' (cuda13, tpu)"
    ) from error


def description() -> str:
  """The devices that are used, with their kind: `2 × NVIDIA H100 80GB HBM3`."""
  import jax

  devices = jax.devices()
  kind = devices[0].device_kind
  if devices[0].platform == "cpu":
    kind = f"CPU ({_processor()}, {os.cpu_count()} cores)"
  return kind if len(devices) == 1 else f"{len(devices)} × {kind}"


def unused() -> str:
  """A warning where an accelerator is here and jax computes on the CPU, "" elsewhere."""
  if backend() != "cpu":
    return ""
  for name, (files, extra) in DRIVERS.items():
    if glob.glob(files):
      how = (
        f"JAX_PLATFORMS={os.environ['JAX_PLATFORMS']} asks for that"
        if os.environ.get("JAX_PLATFORMS")
        else f"pip install 'as2jax[{extra}]' adds what jax needs"
      )
      return f"warning: this machine has a {name}, but jax computes on the CPU: {how}"
  return ""


def _processor() -> str:
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
      names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
  except OSError:
    names = []
  return names[0] if names else platform.machine()


def peak_memory() -> int:
  """The most memory in bytes that was in use: of one local device, or of this process on CPU."""
  import jax

  used = [device.memory_stats() or {} for device in jax.local_devices()]
  peaks = [stats["peak_bytes_in_use"] for stats in used if "peak_bytes_in_use" in stats]
  return max(peaks) if peaks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
