"""as2jax: answer sentence selection in JAX and Flax."""

from as2jax.runtime import startup

startup.listen_for_interrupt()

from as2jax.runtime import cpu_compiler, registry  # noqa: E402
from as2jax.runtime.version import __version__ as __version__  # noqa: E402

cpu_compiler.leave_out_wrong_fusions()

# The public names, imported when they are first asked for: `import as2jax` stays light.
_PUBLIC = {
  "Run": "as2jax.inference.run:Run",
  "dataset": "as2jax.data.datasets.named:dataset",
  "open_run": "as2jax.inference.run:Run",
}


def __getattr__(name: str):
  if name not in _PUBLIC:
    raise AttributeError(f"module 'as2jax' has no attribute {name!r}")
  return registry.resolve(_PUBLIC[name])


def __dir__() -> list[str]:
  return sorted({*globals(), *_PUBLIC})
