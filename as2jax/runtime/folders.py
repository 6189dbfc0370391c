"""The folders of data and caches, as a config or the environment names them."""

import os

from etils import epath


def data_folder(given: str = "") -> epath.Path:
  """The folder of the source files: `given`, $AS2JAX_DATA or ~/.cache/as2jax/data."""
  home = epath.Path("~/.cache/as2jax").expanduser()
  return _folder(given, "AS2JAX_DATA", home / "data")


def cache_folder(given: str = "") -> epath.Path:
  """The folder of everything that can be made again: `given`, $AS2JAX_CACHE or ~/.cache/as2jax."""
  return _folder(given, "AS2JAX_CACHE", epath.Path("~/.cache/as2jax"))


def _folder(given: str, variable: str, default: epath.Path) -> epath.Path:
  return epath.Path(given or os.environ.get(variable) or default).expanduser()
