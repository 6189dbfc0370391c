"""Huge pages for the C allocator: without them a CPU step spends a fifth of its time on page faults.

glibc gives freed memory back to the system after each step and gets it again, page by page, in the
next. With huge pages a page fault brings 512 pages at once. glibc reads its tunables once, when a
process begins: so they are set for child processes (`environment`; the launch scripts do it, too),
and a process that was started without them says how to get them (`advice`).
"""

import platform
from collections.abc import Mapping

TUNABLE = "glibc.malloc.hugetlb=1"


def environment(current: Mapping[str, str]) -> dict[str, str]:
  """The environment for a child process: `current`, with huge pages where nothing speaks against them.

  It stays as it is off glibc, or where the user tunes malloc already (GLIBC_TUNABLES, MALLOC_…), or
  says AS2JAX_ALLOCATOR=off.
  """
  tuned = any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in current)
  if tuned or current.get("AS2JAX_ALLOCATOR") == "off" or platform.libc_ver()[0] != "glibc":
    return dict(current)
  return {**current, "GLIBC_TUNABLES": TUNABLE}


def advice(current: Mapping[str, str]) -> str:
  """One line on how to get huge pages, "" where there is nothing to be gained."""
  if environment(current) == dict(current):
    return ""
  return (
    "CPU steps take about a fifth less time with huge pages: start with "
    f"GLIBC_TUNABLES={TUNABLE} in the environment (AS2JAX_ALLOCATOR=off: without this line)"
  )
