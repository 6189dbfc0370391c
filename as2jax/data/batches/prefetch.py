"""Prepares the next items in a thread while the device works on this one."""

import collections
import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def prefetch(make: Callable[[int], T], numbers: Iterable[int], depth: int = 2) -> Iterator[T]:
  """Yields `make(i)` for each number, in order, made at most `depth` ahead.

  It hides latency and decides nothing: the items are those of a plain loop. An exception in `make`
  is raised where its item would have been yielded; a consumer that stops early stops the thread.
  """
  ahead: collections.deque[concurrent.futures.Future] = collections.deque()
  with concurrent.futures.ThreadPoolExecutor(1, "prefetch") as pool:
    try:
      for i in numbers:
        ahead.append(pool.submit(make, i))
        if len(ahead) > depth:
          yield ahead.popleft().result()
      while ahead:
        yield ahead.popleft().result()
    finally:
      pool.shutdown(cancel_futures=True)
