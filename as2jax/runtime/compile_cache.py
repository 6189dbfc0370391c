"""The persistent compilation cache: the second start of a job compiles nothing."""

from typing import Any

import jax
from etils import epath

from as2jax.runtime.errors import InputError
from as2jax.runtime.folders import cache_folder


def use_cache(config: Any) -> None:
  """Points jax's persistent compilation cache at `config.compilation_cache`.

  Raises:
    InputError: the folder cannot be created.

  """
  if config.compilation_cache == "off":
    return
  folder = epath.Path(config.compilation_cache or cache_folder(config.data.cache) / "xla")
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise InputError(
      f"the folder of compiled programs, {folder}, cannot be made ({error}); name "
      "another in AS2JAX_CACHE or --config.compilation_cache, or say off"
    ) from error
  jax.config.update("jax_compilation_cache_dir", str(folder))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
