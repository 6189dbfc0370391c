"""TPU chips as their maker states them, and compile-only devices of a topology without any chip.

Figures are those of Google's system architecture pages for one chip: HBM, peak of bfloat16 matrix
products (which XLA also uses for float32 ones at default precision), bandwidth of the HBM, and of
all links between chips together.
"""

import importlib.util
import math
import os
import pathlib
import re
from typing import Any, NamedTuple

from as2jax.runtime.errors import InputError

GIB = 2**30
LIBTPU = "0.0.41"  # the one that jax 0.10.1 asks for
# Apart from the other packages: with libtpu among them jax looks for a TPU at each start.
FOLDER = pathlib.Path(__file__).resolve().parents[3] / ".libtpu"


class Chip(NamedTuple):
  """One chip: bytes of HBM, peak in FLOP/s, bytes/s of the HBM and of the links between chips."""

  name: str
  hbm: float
  peak: float
  bandwidth: float
  links: float


CHIPS = {
  "v4": Chip("v4", 32 * GIB, 275e12, 1228e9, 300e9),
  "v5e": Chip("v5e", 16 * GIB, 197e12, 819e9, 200e9),
  "v5p": Chip("v5p", 95 * GIB, 459e12, 2765e9, 600e9),
  "v6e": Chip("v6e", 32 * GIB, 918e12, 1640e9, 448e9),
}
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
  folders = [FOLDER / "libtpu"]
  if spec and spec.origin:
    folders.insert(0, pathlib.Path(spec.origin).parent)
  for folder in folders:
    if (folder / "libtpu.so").exists():
      return folder / "libtpu.so"
  return None


def absent() -> str:
  """Return why nothing can be compiled for TPUs here, "" where it can."""
  if library():
    return ""
  return (
    f"the package libtpu, which holds the compiler for TPUs, is not here: pip install "
    f"--no-deps --target {FOLDER.name} libtpu=={LIBTPU} (212 MB; no TPU is needed)"
  )


def parse(topology: str) -> tuple[Chip, tuple[int, ...]]:
  """Return the chip and the shape of a topology such as `v5e:16x16`.

  Raises:
    InputError: another form, or another chip.

  """
  match = re.fullmatch(r"(\w+):(\d+(?:x\d+){1,2})", topology)
  if not match or match[1] not in CHIPS:
    raise InputError(
      f"--topology={topology}: give a chip ({', '.join(CHIPS)}) and its slice's "
      "shape, such as v5e:16x16 or v4:2x2x4"
    )
  return CHIPS[match[1]], tuple(map(int, match[2].split("x")))


def devices(topology: str) -> tuple[Chip, list[Any]]:
  """Return what a device of a topology is, and compile-only devices in the topology's order.

  Of v4 a device is a core, half a chip, and is called so.

  Raises:
    InputError: libtpu is missing, or it does not know the topology.

  """
  chip, shape = parse(topology)
  if reason := absent():
    raise InputError(reason)
  for name, value in _ENVIRONMENT.items():
    os.environ.setdefault(name, value)
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
  if cores > 1:
    chip = Chip(f"{chip.name} core", *(figure / cores for figure in chip[1:]))
  return chip, list(compile_devices)
