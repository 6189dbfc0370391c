"""SIGTERM and SIGINT (^C): all processes agree on one point of the program, save there, and end.

The exit status is 75 after SIGTERM, and 130 in the process that heard SIGINT; after both the same
command continues the run. A second SIGINT ends the process at once.

A point is a training step or a batch of an evaluation; every process passes the same points in the
same order. With several processes, a signal may reach only one of them: jax's coordination service
then lets all agree on the latest point that any has reached, plus one
(`reached_preemption_sync_point`, .1 µs a point; an all-gather would be one more collective a step).
"""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterator
from typing import NoReturn

from as2jax.runtime import processes

AGAIN = 75  # EX_TEMPFAIL: the same command continues the run
INTERRUPTED = 128 + signal.SIGINT  # as shells report it; the same command continues the run, too
LATE = 2.0  # seconds after SIGINT in which the next point is expected


class Preempted(BaseException):
  """The run must end and can be resumed; like KeyboardInterrupt, it is not an `Exception`.

  Its text, where it has one, says what was saved.
  """


class _Heard:
  """The signal handlers' state and the number of points passed."""

  signal = False
  interrupt = False
  deferred = False
  point = 0


def listen() -> None:
  """Installs the handler: SIGTERM raises `Preempted`, within `deferred` at the next point."""
  if processes.started():
    return  # jax handles the signal

  def hear(*_):
    _Heard.signal = True
    if not _Heard.deferred:
      raise Preempted

  signal.signal(signal.SIGTERM, hear)


def listen_for_interrupt() -> None:
  """Handles SIGINT from here on; called in the main thread, before the long imports.

  Within `deferred`, and with several processes, SIGINT takes effect at the next point. Elsewhere
  nothing is to be saved, and the process ends at once: an exception out of a handler may be lost in
  a callback, or come out of an import as another error. A thread hears the signal as well, because
  Python runs no handler during a compilation of minutes. A process that was started to ignore
  SIGINT goes on ignoring it.
  """
  if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    return
  reader, writer = os.pipe()
  os.set_blocking(writer, False)
  signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
  signal.signal(signal.SIGINT, lambda *_: _note_interrupt())
  threading.Thread(target=_hear, args=(reader,), name="interrupts", daemon=True).start()


def stop_listening() -> None:
  """Gives SIGINT back to Python, for code that ends what it started at KeyboardInterrupt."""
  if signal.set_wakeup_fd(-1) >= 0:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def work_is_done() -> None:
  """Ignores SIGINT from here on: nothing is left to do but to end."""
  signal.set_wakeup_fd(-1)
  signal.signal(signal.SIGINT, signal.SIG_IGN)


def _note_interrupt() -> bool:
  """Asks for an end at the next point if there may be something to save; returns whether it did.

  The handler and the thread both call it: whichever is first, the next point sees it.
  """
  if _Heard.deferred or processes.started():
    _Heard.signal = _Heard.interrupt = True
  return _Heard.interrupt


def _hear(reader: int) -> None:
  """Acts on the first SIGINT, and ends the process at the second one; runs in a thread."""
  while signal.SIGINT not in os.read(reader, 1):
    pass  # the pipe tells of other signals, too
  if not _note_interrupt():
    _end("stopped by SIGINT: there was nothing to save; the same command goes on")
  if processes.started():
    os.kill(os.getpid(), signal.SIGTERM)  # jax tells the other processes
  if not select.select([reader], [], [], LATE)[0]:
    _say("SIGINT: it ends when the step under way is done and saved; a second one ends it at once")
  while signal.SIGINT not in os.read(reader, 1):
    pass
  _end("stopped by a second SIGINT; the same command goes on from the last checkpoint")


def _say(text: str) -> None:
  # Not through `sys.stderr`, whose lock the main thread may hold for ever.
  os.write(2, f"{processes.name()}: {text}\n".encode())


def _end(text: str) -> NoReturn:
  _say(text)
  if processes.count() > 1:
    processes.leave(INTERRUPTED, text)
  os._exit(INTERRUPTED)


def status() -> int:
  """Returns the exit status of a process that ends by `Preempted`."""
  return INTERRUPTED if _Heard.interrupt else AGAIN


def reason() -> str:
  """Returns the name of the signal by which this process ends."""
  return "SIGINT" if _Heard.interrupt else "SIGTERM"


@contextlib.contextmanager
def deferred() -> Iterator[None]:
  """Defers signals to the next point, because there is state to save."""
  before, _Heard.deferred = _Heard.deferred, True
  try:
    yield
  finally:
    _Heard.deferred = before


def due() -> bool:
  """Counts one point of the program; true at the point at which all processes must end."""
  _Heard.point += 1
  if processes.started():
    from jax.experimental import multihost_utils

    return multihost_utils.reached_preemption_sync_point(_Heard.point)
  return _Heard.signal


def check() -> None:
  """Counts one point with nothing to save; raises `Preempted` where all processes must end."""
  if due():
    raise Preempted
