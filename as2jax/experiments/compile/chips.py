"""TPU chips as Google's system architecture pages state them, and compile-only devices without any chip."""

import importlib.metadata
import importlib.util
import math
import os
import pathlib
import re
from typing import Any, NamedTuple

from as2jax.runtime.errors import InputError

GIB = 2**30
# Apart from the other packages: with libtpu among them jax looks for a TPU at each start.
FOLDER = pathlib.Path(__file__).resolve().parents[3] / ".libtpu"
CHIPS = {"v4": 32 * GIB, "v5e": 16 * GIB, "v5p": 95 * GIB, "v6e": 32 * GIB}  # bytes of HBM
# Without these libtpu asks a metadata server, for minutes, warns of what it did not hear, and keeps
# other processes out by a lock file, which only those with a device need.
_ENVIRONMENT = {
  "TPU_SKIP_MDS_QUERY": "1",
  "TPU_WORKER_HOSTNAMES": "localhost",
  "TPU_ACCELERATOR_TYPE": "v5litepod-1",
  "TPU_STDERR_LOG_LEVEL": "3",
  "TPU_MIN_LOG_LEVEL": "3",
  "TF_CPP_MIN_LOG_LEVEL": "3",
  "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def library() -> pathlib.Path | None:
  """Return the compiler's library: of the package libtpu if that is installed, or in `FOLDER`."""
  spec = importlib.util.find_spec("libtpu")
  package = FOLDER / "libtpu"
  if spec and spec.origin:
    package = pathlib.Path(spec.origin).parent
  return package / "libtpu.so" if (package / "libtpu.so").exists() else None


def asked() -> str:
  """Return the requirement of libtpu that the installed jax states."""
  stated = importlib.metadata.requires("jax") or []
  return next(line for line in stated if line.startswith("libtpu")).partition(";")[0]


def absent() -> str:
  """Return why nothing can be compiled for TPUs here, "" where it can."""
  if library():
    return ""
  return (
    f"the package libtpu, which holds the compiler for TPUs, is not here: pip install "
    f"--no-deps --target {FOLDER.name} '{asked()}' (212 MB; no TPU is needed)"
  )


class Chip(NamedTuple):
  """A device of a topology: its name, and bytes of HBM."""

  name: str
  hbm: float


def devices(topology: str) -> tuple[Chip, list[Any]]:
  """Return what a device of a topology such as `v5e:16x16` is, and compile-only devices in its order.

  Of v4 a device is a core, half a chip. InputError for another chip, or without libtpu.
  """
  match = re.fullmatch(r"(\w+):(\d+(?:x\d+){1,2})", topology)
  if not match or match[1] not in CHIPS:
    raise InputError(
      f"--topology={topology}: give a chip ({', '.join(CHIPS)}) and its slice's "
      "shape, such as v5e:16x16 or v4:2x2x4"
    )
  name, shape = match[1], tuple(map(int, match[2].split("x")))
  if reason := absent():
    raise InputError(reason)
  for key, value in _ENVIRONMENT.items():
    os.environ.setdefault(key, value)
  os.environ.setdefault("TPU_LIBRARY_PATH", str(library()))
  from jax.experimental import topologies

  # A host holds up to 2 × 2 chips; of a smaller slice it holds all.
  bounds = (*(min(size, 2) for size in shape[:2]), 1)
  try:
    compile_devices = topologies.get_topology_desc(
      platform="tpu", topology_name=topology, chips_per_host_bounds=bounds
    ).devices
  except Exception as error:  # libtpu's own, of several kinds
    raise InputError(
      f"--topology={topology}: libtpu does not give it ({str(error).splitlines()[0]})"
    ) from error
  cores = len(compile_devices) // math.prod(shape)
  label = name if cores == 1 else f"{name} core"
  return Chip(label, CHIPS[name] / cores), list(compile_devices)
