"""as2jax: answer sentence selection in JAX and Flax."""

from as2jax.runtime import cpu_compiler
from as2jax.runtime.version import __version__ as __version__

cpu_compiler.leave_out_wrong_fusions()
