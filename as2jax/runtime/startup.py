"""Ctrl-C before a run's process can handle it (`preemption.listen_for_interrupt`): one line."""

import os
import sys

COMMANDS = ("as2jax.main",)  # of `python -m`


def listen_for_interrupt() -> None:
  """Ends a process that begins one of `COMMANDS` at its first SIGINT, with one line and status 130.

  Called before all other imports: Python's own handler prints a traceback of wherever it is, and
  its module `signal` takes longer to import than this whole file. Elsewhere it does nothing.
  """
  if sys.argv[:1] != ["-m"] or not set(COMMANDS) & set(sys.orig_argv):
    return
  import _signal

  if _signal.getsignal(_signal.SIGINT) is not _signal.SIG_IGN:
    _signal.signal(_signal.SIGINT, _end)


def _end(*_) -> None:
  os.write(2, b"as2jax: stopped by SIGINT: there was nothing to save; the same command goes on\n")
  os._exit(130)
