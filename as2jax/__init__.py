"""as2jax: answer sentence selection in JAX and Flax."""

from as2jax.runtime.version import __version__ as __version__
