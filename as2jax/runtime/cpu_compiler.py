"""Known miscompilations of jaxlib's CPU compiler, and how runs avoid them.

On CPU, XLA hands small products and reductions to YNNPACK as one fusion. With jaxlib 0.10.2 this
gives wrong numbers (jax-ml/jax#39103) and crashes (#39257, #40412). jaxlib 0.9.2, 0.10.0 and 0.10.1
pass the programs published there, but with them, too, the product of a matrix of 3 rows with more
than 2**15 vectors is wrong when it is reduced over the 3 rows (sum or maximum). Without these
fusions, 0.10.1 computes `tests/wheel_program.py` correctly; 0.11.2 and 0.12.0.1 do with and without them.

With 0.12 and XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT a
CPU with AVX512-BF16 multiplies bfloat16 twice as fast. Not all tests have been run with it.
"""

import os
from collections.abc import MutableMapping

from as2jax.runtime.errors import InputError

OPTION = "xla_cpu_experimental_ynn_fusion_type"  # which operations are fused; empty for none
REFUSED = ("0.10.2",)


def leave_out_wrong_fusions(environment: MutableMapping[str, str] = os.environ) -> None:
  """Disables XLA's YNNPACK fusions, unless XLA_FLAGS already sets the option.

  XLA reads XLA_FLAGS once, when jax first asks for a device, so importing `as2jax` calls this.
  """
  flags = environment.get("XLA_FLAGS", "")
  if OPTION not in flags:
    environment["XLA_FLAGS"] = f"{flags} --{OPTION}=".strip()


def check(platform: str) -> None:
  """Raises InputError where `platform` is "cpu" and the installed jaxlib is refused there."""
  import jaxlib  # not at the top: `as2jax` can be imported without it

  if platform == "cpu" and jaxlib.__version__ in REFUSED:
    raise InputError(
      f"jaxlib {jaxlib.__version__} computes wrong numbers on CPUs (jax-ml/jax#39103): "
      "pip install -r requirements.txt installs the version that was tested"
    )
