"""Compiled programs kept on disk, so that the second start of a job compiles nothing."""

from typing import Any

import jax

from as2jax.data.dataset import cache_folder


def use_cache(config: Any) -> None:
  """Points jax's persistent compilation cache at `config.compilation_cache`."""
  if config.compilation_cache == "off":
    return
  folder = config.compilation_cache or str(cache_folder(config.data.cache) / "xla")
  jax.config.update("jax_compilation_cache_dir", folder)
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
