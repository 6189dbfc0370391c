"""Prepares the next items in a thread while the device works on this one."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
_END = object()


def prefetch(make: Callable[[int], T], numbers: Iterable[int], depth: int = 2) -> Iterator[T]:
  """Yields `make(i)` for each number, in order, made at most `depth` ahead.

  It hides latency and decides nothing: the items are those of a plain loop. An exception in `make`
  is raised where its item would have been yielded; a consumer that stops early stops the thread.
  """
  items: queue.Queue = queue.Queue(maxsize=depth)
  stopped = threading.Event()

  def put(item) -> bool:
    while not stopped.is_set():
      try:
        items.put(item, timeout=0.1)
        return True
      except queue.Full:
        continue
    return False

  def work():
    try:
      for i in numbers:
        if not put((make(i), None)):
          return
      put((_END, None))
    except BaseException as error:  # handed over, not swallowed
      put((_END, error))

  thread = threading.Thread(target=work, name="prefetch", daemon=True)
  thread.start()
  try:
    while True:
      item, error = items.get()
      if error is not None:
        raise error
      if item is _END:
        return
      yield item
  finally:
    stopped.set()
    thread.join()
