"""The `as2jax` command; `python -m as2jax` is the same."""

import sys

from as2jax.runtime import preemption, streams


def main() -> None:
  """Run the command line and end the process with its status."""
  streams.prepare()
  preemption.listen_for_interrupt()
  from as2jax.commands import app

  status = app.run()
  preemption.work_is_done()
  sys.exit(status)


if __name__ == "__main__":
  main()
