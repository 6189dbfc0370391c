"""Multi-process setup: one process per TPU host, or as --coordinator says; else a single process.

All run the same program and meet in the collectives of its steps. What only one may do (folders,
text files) the first does. Messages go through the coordination service of `jax.distributed`. An
error in one process ends all, which poll the service for it. A killed one tells nothing: the others
name it after `SILENCE` seconds, and the service ends them after `HEARTBEAT` seconds. The service is in
the first process: where that is killed, jax ends the others at once, and `_aborted` names its host.
"""

import ctypes
import glob
import importlib.util
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from as2jax.runtime.errors import InputError

T = TypeVar("T")
log = logging.getLogger(__name__)
HEARTBEAT = 100  # seconds without a sign of life after which a process counts as dead
PATIENCE = 7 * 24 * 3600 * 1000  # milliseconds to wait for a message
LAST_WORDS = 10  # seconds in which a process that aborts says why
LOOK = 1.0  # seconds between two polls for a failure
GRACE = 5.0  # seconds in which a process may raise the same error by itself
SILENCE = 20.0  # seconds without a beat after which a process is named
SAID, FAILED, ALIVE = "as2jax/said", "as2jax/failed", "as2jax/alive"
ENDED = "ended"  # in place of a beat
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class _Run:
  """The index of this process, their number, and the number of messages sent so far."""

  index = 0
  count = 1
  started = False
  messages = 0
  watchdog: "_Watchdog | None" = None
  on_abort: Any = None


def first() -> bool:
  """Returns whether this is the first process, which writes text files and prints."""
  return _Run.index == 0


def count() -> int:
  """Returns the number of processes."""
  return _Run.count


def started() -> bool:
  """Returns whether `jax.distributed` is initialised, possibly with a single process."""
  return _Run.started


def name() -> str:
  """Returns the name of this process in front of its messages."""
  return "as2jax" if _Run.count == 1 else f"as2jax (process {_Run.index})"


def on_tpu_vm() -> bool:
  """Returns whether jax may use TPU chips of this machine, and has the library for them."""
  wanted = os.environ.get("JAX_PLATFORMS") or "tpu"
  chips = glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*")
  return "tpu" in wanted and bool(chips) and importlib.util.find_spec("libtpu") is not None


def start(coordinator: str = "", processes: int = 0, process_id: int = -1) -> None:
  """Joins the other processes of the run; call it before anything touches a device.

  `coordinator` is the `HOST:PORT` of process 0; "auto" leaves all to jax's own detection (Slurm,
  Open MPI, Kubernetes), as "" does on a TPU VM; elsewhere, or where `processes` is 1, "" is a single
  process. `process_id` is the index of this process, from 0.

  InputError: incomplete flags, or processes that do not find each other.
  """
  import jax

  detected = coordinator in ("", "auto")
  if processes == 1 and detected:
    return
  arguments = {}
  if not detected or processes or process_id >= 0:
    if ":" not in coordinator or processes < 1 or not 0 <= process_id < processes:
      raise InputError(
        f"--coordinator={coordinator} --processes={processes} --process_id={process_id}: several "
        "processes need all three: HOST:PORT of process 0, their number, and the number of this "
        "one, from 0"
      )
    arguments = dict(coordinator_address=coordinator, num_processes=processes)
    arguments["process_id"] = process_id
    if coordinator.rpartition(":")[0] in LOOPBACK:  # else jax opens the port on every interface
      arguments["coordinator_bind_address"] = coordinator
  elif not coordinator and not on_tpu_vm():
    return
  try:
    jax.distributed.initialize(**arguments, heartbeat_timeout_seconds=HEARTBEAT)
  except (RuntimeError, ValueError) as error:
    raise InputError(
      f"the processes of this run did not find each other ({error}): start the same command on "
      "every host within five minutes; --processes=1 does not wait for the others"
    ) from error
  _Run.started, _Run.messages = True, 0
  _Run.index, _Run.count = jax.process_index(), jax.process_count()
  if _Run.count > 1:
    _Run.watchdog = _Watchdog()
    _Run.on_abort = ctypes.CFUNCTYPE(None, ctypes.c_int)(_aborted)  # else it is collected
    ctypes.CDLL(None).signal(int(signal.SIGABRT), _Run.on_abort)


def _aborted(number: int) -> None:
  """Names the host of the first process where it is gone, before jax's `abort` ends this process."""
  del number
  # What aborts may hold a lock that Python needs here: the kernel ends a process that hangs in this handler.
  signal.alarm(LAST_WORDS)
  from jax._src import distributed

  if first() or _Run.watchdog is None or _Run.watchdog.named:
    return
  host, _, port = distributed.global_state.coordinator_address.rpartition(":")
  try:
    socket.create_connection((host.strip("[]"), int(port)), LOOK).close()
  except OSError:
    text = "has ended or cannot be reached; the same command on every host goes on from the last checkpoint"
    print(f"{name()}: {_Run.watchdog.place(0)} {text}", file=sys.stderr, flush=True)


def _service() -> Any:
  # Not public, but Orbax and others depend on it; all use of it is in this file.
  from jax._src import distributed

  return distributed.global_state.client


def _set(key: str, content: Any) -> None:
  _service().key_value_set(key, json.dumps(content), allow_overwrite=True)


def _await(key: str) -> Any:
  return json.loads(_service().blocking_key_value_get(key, PATIENCE))


def _all(key: str) -> dict[int, Any]:
  """Returns what is set below a key, by the number at the end of its name."""
  entries = _service().key_value_dir_get(f"{key}/")
  return {int(name.rpartition("/")[2]): json.loads(text) for name, text in entries}


def _number() -> int:
  """Numbers the next message, before its content is computed, which may send others."""
  _Run.messages += 1
  return _Run.messages


def by_first(function: Callable[[], T]) -> T:
  """Calls `function` in the first process; its result (JSON) or InputError is every process's."""
  if _Run.count == 1:
    return function()
  key = f"{SAID}/{_number()}"
  if not first():
    message = _await(key)
    if "error" in message:
      raise InputError(message["error"])
    return message["value"]
  try:
    value = function()
  except InputError as error:
    _set(key, {"error": str(error)})
    raise
  _set(key, {"value": value})
  return value


def in_order(function: Callable[[], T]) -> T:
  """Calls `function`, which reuses the files it creates, in the first process, then in the others."""
  if _Run.count == 1:
    return function()
  results: list[T] = []
  by_first(lambda: results.append(function()))
  return results[0] if first() else function()


class _Watchdog:
  """Ends this process where another has failed, and names one that is silent.

  Of two threads, one asks the service, and may hang with it; the other judges by the time.
  """

  def __init__(self):
    self._done = threading.Event()
    self._answered = time.monotonic()  # when the service last did
    self._failed: dict[int, tuple[int, str]] = {}
    # Of each process: its last beat, its host's name, and when the beat was first heard.
    self._heard = {i: (0, "an unknown host", self._answered) for i in range(_Run.count)}
    self.named: set[int] = set()
    self._threads = [threading.Thread(target=f, daemon=True) for f in (self._ask, self._look)]
    for thread in self._threads:
      thread.start()

  def _ask(self) -> None:
    beat = 0
    while not self._done.wait(LOOK):
      beat += 1
      try:
        _set(f"{ALIVE}/{_Run.index}", [beat, socket.gethostname()])
        self._failed = _all(FAILED)
        for i, (heard, host) in _all(ALIVE).items():
          if heard != self._heard[i][0]:
            self._heard[i] = (heard, host, time.monotonic())
        self._answered = time.monotonic()
      except Exception:  # it may be busy, or gone: `_look` judges by the time
        continue

  def _look(self) -> None:
    while not self._done.wait(LOOK):
      failures = dict(self._failed)
      if failures and not self._done.wait(GRACE):
        process, (status, text) = min(failures.items())
        print(f"{name()}: process {process} has failed: {text}", file=sys.stderr, flush=True)
        leave(status, text)
      for line in self.silent(time.monotonic()):
        print(f"{name()}: {line}", file=sys.stderr, flush=True)

  def silent(self, now: float) -> list[str]:
    """Returns a line for each process that is newly silent, or answers again."""
    late = set()
    for i, (beat, _, when) in self._heard.items():
      if i != _Run.index and beat != ENDED and now - when > SILENCE:
        late.add(i)
    if now - self._answered > SILENCE:  # the service is in the first process; without it,
      late &= {0}  # nothing is known of the others
    said = (
      f"has not answered for {SILENCE:.0f} s; without it the run ends after {HEARTBEAT} s, and "
      "the same command goes on from the last checkpoint"
    )
    lines = []
    for i in sorted(late ^ self.named):
      lines.append(f"{self.place(i)} {said if i in late else 'answers again'}")
    self.named = late
    return lines

  def place(self, process: int) -> str:
    """Returns a process with its host, for a message."""
    return f"process {process} on {self._heard[process][1]}"

  def stop(self) -> None:
    """Ends the threads; one that waits for an answer in vain is left behind."""
    self._done.set()
    for thread in self._threads:
      if threading.current_thread() is not thread:
        thread.join(2 * LOOK)


def leave(status: int, text: str) -> None:
  """Ends this process after an error, and makes the others end, for which a normal exit would wait.

  Behind `stop` it returns: all end by themselves, and need the first process's service until then.
  """
  if _Run.watchdog is None:
    return
  sys.stdout.flush()
  sys.stderr.flush()
  _Run.watchdog.stop()
  try:
    _set(f"{FAILED}/{_Run.index}", [status, text[:2000]])
    end = time.monotonic() + LOOK + GRACE + 2
    # The service is in the first process: the others must have read the message.
    while first() and len(_all(FAILED)) < _Run.count and time.monotonic() < end:
      time.sleep(0.2)
  except Exception as error:  # nothing may keep this process from ending
    log.warning("the other processes could not be told: %s", error)
  os._exit(status)


def stop() -> None:
  """Stops polling for failures: from here on the processes end by themselves."""
  if _Run.watchdog is not None:
    _Run.watchdog.stop()
    try:  # the others may have more to do
      _set(f"{ALIVE}/{_Run.index}", [ENDED, ""])
    except Exception as error:
      log.debug("the other processes are gone: %s", error)
    _Run.watchdog = None
