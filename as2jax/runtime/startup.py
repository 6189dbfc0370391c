"""Ctrl-C before a run's process can handle it (`preemption.listen_for_interrupt`): one line."""

import os
import sys

COMMANDS = ("as2jax", "as2jax.main")  # modules of `python -m`; the first is a program, too

NOTHING = "stopped by SIGINT: there was nothing to save; the same command goes on"


def listen_for_interrupt() -> None:
  """Ends a process that begins one of `COMMANDS` at its first SIGINT (one line, status 130).

  Called before all other imports: Python's own handler prints a traceback of wherever it is, and
  its module `signal` takes longer to import than this whole file. Other programs keep their handler.
  """
  program = os.path.basename(sys.argv[0]) if sys.argv else ""
  if program == "-m":
    program = dict(zip(sys.orig_argv, sys.orig_argv[1:])).get("-m", "")
  if program not in COMMANDS:
    return
  import _signal

  if _signal.getsignal(_signal.SIGINT) is not _signal.SIG_IGN:
    _signal.signal(_signal.SIGINT, _end)


def _end(*_) -> None:
  os.write(2, f"as2jax: {NOTHING}\n".encode())
  os._exit(130)
