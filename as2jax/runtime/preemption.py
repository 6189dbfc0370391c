"""SIGTERM: all processes agree on one point of the program, save there, and end with status 75.

Alone, a process hears the signal itself. Of several, one may hear it alone: then the coordination
service of jax lets all agree on the greatest point that any of them has reached, plus one
(`reached_preemption_sync_point`). That costs nothing while nobody is told (0.1 µs a point); an
all-gather of a flag would be a collective a step. A point is a step of training or a batch that is
predicted: every process passes the same ones in the same order.
"""

import contextlib
import signal
from collections.abc import Iterator

from as2jax.runtime import processes

AGAIN = 75  # EX_TEMPFAIL: the same command goes on


class Preempted(BaseException):
  """The run was told to end, and can go on; as ^C, nothing that handles errors takes it for one."""


class _Heard:
  signal = False
  deferred = False
  point = 0


def listen() -> None:
  """From now on SIGTERM raises `Preempted`; within `deferred` at the next point."""
  if processes.started():
    return  # jax has taken the signal

  def hear(*_):
    _Heard.signal = True
    if not _Heard.deferred:
      raise Preempted

  signal.signal(signal.SIGTERM, hear)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
  """Within it SIGTERM is heard at points alone: there is something to save."""
  before, _Heard.deferred = _Heard.deferred, True
  try:
    yield
  finally:
    _Heard.deferred = before


def due() -> bool:
  """Passes a point of the program; true at the one at which all processes are to end."""
  _Heard.point += 1
  if processes.started():
    from jax.experimental import multihost_utils

    return multihost_utils.reached_preemption_sync_point(_Heard.point)
  return _Heard.signal


def check() -> None:
  """Passes a point at which nothing is left to do.

  Raises:
    Preempted: it is the one at which all processes are to end.

  """
  if due():
    raise Preempted
