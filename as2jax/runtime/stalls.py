"""A run that passes no point (see `preemption`) for a while says once what it waits for."""

import sys
import threading
import time

from as2jax.runtime import preemption, processes

AFTER = 60.0  # seconds without a step or a batch
LOOK = 1.0  # seconds between two looks
# What a call in the main thread means, innermost first: (end of its file's name, function, words).
MEANINGS = (
  ("jax/_src/compiler.py", "", "it compiles a program"),
  ("as2jax/runtime/processes.py", "_hear", "it waits for the first process"),
  ("multihost_utils.py", "", "it waits for the other processes"),
  ("as2jax/data/batches/prefetch.py", "prefetch", "it waits for the next batch to be read"),
)


def watch() -> None:
  """Starts the thread that speaks for the main thread, from where this is called."""
  threading.Thread(target=_look, args=(threading.get_ident(),), name="stalls", daemon=True).start()


def _look(thread: int) -> None:
  point, since = preemption.passed(), time.monotonic()
  while time.monotonic() - since < AFTER:
    time.sleep(LOOK)
    if preemption.passed() != point:
      point, since = preemption.passed(), time.monotonic()
  print(
    f"{processes.name()}: no step for {AFTER:.0f} s: {_meaning(thread)}",
    file=sys.stderr,
    flush=True,
  )


def _meaning(thread: int) -> str:
  """What the thread does, by the innermost call whose meaning is known, else where it is."""
  frame, inner = sys._current_frames().get(thread), ""
  while frame is not None:
    file, function = frame.f_code.co_filename.replace("\\", "/"), frame.f_code.co_name
    for end, name, words in MEANINGS:
      if file.endswith(end) and name in ("", function):
        return words
    if not inner and "/as2jax/" in file:
      inner = f"it is in {function} (as2jax/{file.rpartition('/as2jax/')[2]}:{frame.f_lineno})"
    frame = frame.f_back
  return inner or "it ends"
