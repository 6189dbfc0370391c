"""Compiled programs on disk: jax's persistent cache, in a folder of one's own, with checksums.

A program is machine code, which jax loads and runs: a folder that somebody else owns or may write is not
used, and a program that is not what was written is compiled again.
"""

import logging
import os
import stat
import zlib
from typing import Any

import jax
from etils import epath
from jax._src import compilation_cache
from jax._src.lru_cache import LRUCache

from as2jax.runtime import files

SUM = 4  # bytes of a CRC-32 behind each program
OTHERS = stat.S_IWGRP | stat.S_IWOTH
log = logging.getLogger(__name__)


class Programs(LRUCache):
  """Keeps compiled programs, each with its checksum."""

  def get(self, key: str) -> bytes | None:
    """Returns a program; None where there is none, or it is not what was written."""
    kept = super().get(key)
    if kept is None:
      return None
    program = kept[:-SUM]
    if kept[-SUM:] == _sum(program):
      return program
    log.warning(
      "%s: the compiled program %.20s… is damaged, or of an earlier version: it is compiled again",
      self.path, key,
    )  # fmt: skip
    (self.path / f"{key}-cache").unlink(missing_ok=True)  # else `put` would leave it
    return None

  def put(self, key: str, value: bytes) -> None:
    """Writes a program, unless it is there."""
    super().put(key, value + _sum(value))


def _sum(program: bytes) -> bytes:
  return zlib.crc32(program).to_bytes(SUM, "big")


def use(config: Any) -> None:
  """Points jax's cache of programs at a folder, unless caches are `off` or jax has a folder already."""
  chosen = config.compilation_cache
  if files.OFF in (chosen, files.cache_setting(config.data.cache)):
    return
  if jax.config.jax_compilation_cache_dir and not chosen:
    return
  root, below, setting = epath.Path(chosen).expanduser(), "", "compilation_cache"
  if not chosen:
    root, below, setting = files.cache_folder(config.data.cache), "programs", files.CACHE
  folder = files.writable(root, below, setting, mode=0o700)
  if why := exposed(folder, setting):
    files.warn_once(f"{folder}: programs are compiled in each process, because {why}")
    return
  compilation_cache.get_file_cache = _programs
  jax.config.update("jax_compilation_cache_dir", str(folder))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def exposed(folder: epath.Path, setting: str) -> str:
  """Returns why somebody else may have put programs into a folder, and what to do; "" for no.

  `setting` names the folder; of an object store's nothing is known.
  """
  if "://" in str(folder):
    return ""
  about = os.stat(folder)
  if about.st_uid != os.geteuid():
    return f"another user owns this folder: name one of yours in {setting}"
  if about.st_mode & OTHERS:
    return f"others may write this folder: delete it, or empty it and chmod 700 {folder}"
  for parent in epath.Path(os.path.realpath(folder)).parents:
    mode = os.stat(parent).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
      return f"others may write {parent}: name a folder of yours in {setting}"
  return ""


def _programs(path: str) -> tuple[Programs, str]:
  return Programs(path, max_size=jax.config.jax_compilation_cache_max_size), path
