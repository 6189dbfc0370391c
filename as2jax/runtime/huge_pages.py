"""Huge pages for the C allocator: without them a CPU step spends a fifth of its time on page faults.

glibc gives freed memory back to the system after each step and gets it again, page by page, in the
next. With huge pages a page fault brings 512 pages at once.
"""

import os
import platform
import sys
from collections.abc import Mapping, Sequence

TUNABLE = "glibc.malloc.hugetlb=1"


def environment(current: Mapping[str, str]) -> dict[str, str] | None:
  """The environment to start again with, or None where nothing is to be done.

  Nothing is done off glibc, or where the user tunes malloc already (GLIBC_TUNABLES, MALLOC_…), or
  says AS2JAX_ALLOCATOR=off.
  """
  tuned = any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in current)
  if tuned or current.get("AS2JAX_ALLOCATOR") == "off" or platform.libc_ver()[0] != "glibc":
    return None
  return {**current, "GLIBC_TUNABLES": TUNABLE}


def start_with_huge_pages(module: str, arguments: Sequence[str]) -> None:
  """Starts `python -m module arguments` in place of this process: glibc reads its tunables once.

  Call it before anything heavy is imported. Returns where nothing is to be done.
  """
  chosen = environment(os.environ)
  if chosen is not None:
    os.execve(sys.executable, [sys.executable, "-m", module, *arguments], chosen)
