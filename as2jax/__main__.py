"""The `as2jax` command; `python -m as2jax` is the same."""

import os
import sys

from as2jax.runtime import preemption

LONG = ("train", "evaluate")  # verbs that save at SIGINT what there is to save


def main() -> None:
  """Runs the command line and ends the process with its status."""
  preemption.listen_for_interrupt(unwinds=not set(sys.argv[1:2]) & set(LONG))
  from as2jax.commands import app

  status = app.run()
  if preemption.interrupted():  # the interpreter's own end takes long, and could be interrupted
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
  preemption.work_is_done()
  sys.exit(status)


if __name__ == "__main__":
  main()
