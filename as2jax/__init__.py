"""as2jax: answer sentence selection in JAX and Flax."""

from as2jax import cpu_compiler

__version__ = "0.1.0"
cpu_compiler.leave_out_wrong_fusions()
