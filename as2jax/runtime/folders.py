"""The folders of data and caches, as the config or the environment sets them."""

import os

from etils import epath


def data_folder(configured: str = "") -> epath.Path:
  """The folder of the source files: `configured`, else $AS2JAX_DATA, else ~/.cache/as2jax/data."""
  home = epath.Path("~/.cache/as2jax").expanduser()
  return _folder(configured, "AS2JAX_DATA", home / "data")


def cache_folder(configured: str = "") -> epath.Path:
  """The folder of derived files: `configured`, else $AS2JAX_CACHE, else ~/.cache/as2jax."""
  return _folder(configured, "AS2JAX_CACHE", epath.Path("~/.cache/as2jax"))


def _folder(configured: str, variable: str, default: epath.Path) -> epath.Path:
  return epath.Path(configured or os.environ.get(variable) or default).expanduser()
