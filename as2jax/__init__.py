"""as2jax: answer sentence selection in JAX and Flax."""

__version__ = "0.1.0"
