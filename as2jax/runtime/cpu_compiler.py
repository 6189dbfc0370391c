"""What jaxlib's compiler for CPUs is known to compute wrongly, and how a run is kept from it.

XLA gives small products and reductions on a CPU to YNNPACK as one fusion. With jaxlib 0.10.2 that
gives wrong numbers (jax-ml/jax#39103) and crashes (#39257, #40412). jaxlib 0.9.2, 0.10.0 and 0.10.1
pass the programs published there, but a matrix of 3 rows times more than 2**15 vectors, summed (or
its greatest taken) over the 3, is wrong with them, too. Without these fusions 0.10.1
computes `tests/wheel_program.py` correctly.
"""

import os
from collections.abc import MutableMapping

from as2jax.runtime.errors import InputError

OPTION = "xla_cpu_experimental_ynn_fusion_type"  # which operations are fused; empty for none
REFUSED = ("0.10.2",)


def leave_out_wrong_fusions(environment: MutableMapping[str, str] = os.environ) -> None:
  """Has XLA make no fusions for YNNPACK, unless XLA_FLAGS says which.

  XLA reads XLA_FLAGS once, when jax first asks for a device; so `as2jax` calls this when imported.
  """
  flags = environment.get("XLA_FLAGS", "")
  if OPTION not in flags:
    environment["XLA_FLAGS"] = f"{flags} --{OPTION}=".strip()


def check(platform: str) -> None:
  """Raises InputError where `platform` is "cpu" and the installed jaxlib is refused there."""
  import jaxlib  # here, so that `as2jax` may be imported without it

  if platform == "cpu" and jaxlib.__version__ in REFUSED:
    raise InputError(
      f"jaxlib {jaxlib.__version__} computes wrong numbers on CPUs "
      "(jax-ml/jax#39103): pip install -r requirements.txt installs the version "
      "that was tested"
    )
