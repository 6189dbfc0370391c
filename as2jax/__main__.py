"""The `as2jax` command; `python -m as2jax` is the same."""

import sys

from as2jax.runtime import startup

LONG = ("train", "evaluate")  # verbs that save at SIGINT what there is to save


def main() -> None:
  """Runs the command line and ends the process with its status."""
  if sys.argv[1:2] and sys.argv[1] in LONG:
    from as2jax.runtime import preemption

    preemption.listen_for_interrupt()
  from as2jax.commands import app

  if sys.argv[1:2] and sys.argv[1] not in LONG:
    startup.hand_over()
  sys.exit(app.run())


if __name__ == "__main__":
  main()
