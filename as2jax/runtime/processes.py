"""The processes of one run: one a host of a TPU slice, or as flags say; a single one otherwise.

All processes run the same program on the same plan and meet in the collectives of its steps. What
only one may do (folders, text files) the first does; the others wait for what it says. Processes
talk through the coordination service of `jax.distributed`, not through the devices: a host may take
its time, and texts may have any length.

An error of one process ends all of them: it tells the service, and the others, who may be waiting
in a collective that will never end, look there every second (`_Watch`). Who is killed cannot tell:
the service misses its heartbeat for `HEARTBEAT` seconds and ends the rest.
"""

import glob
import importlib.util
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from as2jax.runtime.errors import InputError

T = TypeVar("T")
log = logging.getLogger(__name__)
HEARTBEAT = 100  # seconds without a sign of life after which a process counts as dead
PATIENCE = 7 * 24 * 3600.0  # seconds; whether the first process still lives the service watches
LOOK = 1.0  # seconds between two looks for a failure
GRACE = 5.0  # seconds in which a process may find the same error by itself
FAILED = "as2jax/failed/"


class _Run:
  """Which process this is; how many messages the first has sent."""

  index = 0
  count = 1
  started = False
  messages = 0
  watch: "_Watch | None" = None


def first() -> bool:
  """Whether this process is the one that writes text files and talks."""
  return _Run.index == 0


def count() -> int:
  """Number of processes."""
  return _Run.count


def index() -> int:
  """Number of this process, from 0."""
  return _Run.index


def started() -> bool:
  """Whether `jax.distributed` runs, though perhaps with a single process."""
  return _Run.started


def on_tpu_vm() -> bool:
  """Whether this machine has TPU chips and the library for them, and jax may use them."""
  wanted = os.environ.get("JAX_PLATFORMS", "")
  devices = glob.glob("/dev/accel*") + glob.glob("/dev/vfio/[0-9]*")
  return (
    (not wanted or "tpu" in wanted)
    and bool(devices)
    and importlib.util.find_spec("libtpu") is not None
  )


def start(coordinator: str = "", processes: int = 0, process_id: int = -1) -> None:
  """Joins the other processes of the run; call it before anything touches a device.

  Args:
    coordinator: `HOST:PORT` of process 0, which opens that port; "auto" leaves all three to jax's
      own detection (Slurm, Open MPI, Kubernetes); "" is auto on a TPU VM, else a single process.
    processes: how many there are; 1 is a single process, on a TPU VM, too.
    process_id: the number of this one, from 0.

  Raises:
    InputError: flags that say half of it, or processes that do not find each other.

  """
  import jax

  if processes == 1 and coordinator in ("", "auto"):
    return
  given = {}
  if coordinator not in ("", "auto") or processes or process_id >= 0:
    if ":" not in coordinator or processes < 1 or not 0 <= process_id < processes:
      raise InputError(
        f"--coordinator={coordinator} --processes={processes} "
        f"--process_id={process_id}: several processes need all three: HOST:PORT of "
        "process 0, their number, and the number of this one, from 0"
      )
    given = {
      "coordinator_address": coordinator,
      "num_processes": processes,
      "process_id": process_id,
    }
  elif not coordinator and not on_tpu_vm():
    return
  try:
    jax.distributed.initialize(**given, heartbeat_timeout_seconds=HEARTBEAT)
  except (RuntimeError, ValueError) as error:
    raise InputError(
      f"the processes of this run did not find each other ({error}): start the same "
      "command on every host within five minutes; --processes=1 uses this host "
      "alone"
    ) from error
  _Run.started, _Run.messages = True, 0
  _Run.index, _Run.count = jax.process_index(), jax.process_count()
  if _Run.count > 1:
    _Run.watch = _Watch()


def _service() -> Any:
  # Not public, but what Orbax and others lean on; all use of it is in this file.
  from jax._src import distributed

  return distributed.global_state.client


def by_first(function: Callable[[], T]) -> T:
  """What `function` gives in the first process, in every process; JSON data.

  Raises:
    InputError: that of the first process.

  """
  if _Run.count == 1:
    return function()
  number = _number()
  return _tell(number, function) if first() else _hear(number)


def in_order(function: Callable[[], T]) -> T:
  """`function()`, by the first process and then by all the others at once.

  For what makes files that it uses where they are there already: with a folder that hosts share one
  of them makes (or downloads) it, and with folders of their own each has one.
  """
  if _Run.count == 1:
    return function()
  number = _number()
  if first():
    made: list[T] = []
    _tell(number, lambda: made.append(function()))
    return made[0]
  _hear(number)
  return function()


def _number() -> int:
  """The next message's; taken before its content is made, in which others may be sent."""
  _Run.messages += 1
  return _Run.messages


def _tell(number: int, function: Callable[[], T]) -> T:
  try:
    value = function()
  except InputError as error:
    _send(number, {"error": str(error)})
    raise
  _send(number, {"value": value})
  return value


def _send(number: int, message: dict) -> None:
  _service().key_value_set(f"as2jax/said/{number}", json.dumps(message))


def _hear(number: int) -> Any:
  text = _service().blocking_key_value_get(f"as2jax/said/{number}", int(PATIENCE * 1000))
  message = json.loads(text)
  if "error" in message:
    raise InputError(message["error"])
  return message["value"]


class _Watch:
  """A thread that looks whether another process has failed, and then ends this one."""

  def __init__(self):
    self._done = threading.Event()
    self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
    self._thread.start()

  def _look(self) -> None:
    while not self._done.wait(LOOK):
      failures = self._failures()
      if failures and not self._done.wait(GRACE):
        process, (status, text) = min(failures.items())
        print(
          f"as2jax (process {_Run.index}): process {process} has failed: {text}",
          file=sys.stderr,
          flush=True,
        )
        leave(status, text)

  def _failures(self) -> dict[int, tuple[int, str]]:
    try:
      found = _service().key_value_dir_get(FAILED)
    except Exception:  # the service has ended, which ends this process by other means
      return {}
    return {int(key.rpartition("/")[2]): tuple(json.loads(value)) for key, value in found}

  def stop(self) -> None:
    self._done.set()
    if threading.current_thread() is not self._thread:
      self._thread.join()


def leave(status: int, text: str) -> NoReturn:
  """Ends this process after an error, and with it the others; waits for none of them.

  At a normal exit jax waits until all processes have come to their ends, which those that wait for
  this one never do.
  """
  sys.stdout.flush()
  sys.stderr.flush()
  if _Run.count > 1:
    _Run.watch.stop()
    try:
      _service().key_value_set(f"{FAILED}{_Run.index}", json.dumps([status, text[:2000]]))
      end = time.monotonic() + LOOK + GRACE + 2
      # The service is in the first process: the others must have read the message.
      while first() and time.monotonic() < end:
        if len(_service().key_value_dir_get(FAILED)) == _Run.count:
          break
        time.sleep(0.2)
    except Exception as error:  # nothing may keep this process from ending
      log.warning("the other processes could not be told: %s", error)
  os._exit(status)


def stop() -> None:
  """Ends the watch: from here on the processes end by themselves."""
  if _Run.watch is not None:
    _Run.watch.stop()
    _Run.watch = None
