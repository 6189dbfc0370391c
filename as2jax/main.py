"""python -m as2jax.main --config=configs/wikiqa_triplet.py --workdir=runs/x."""

import logging
import os
import sys
import traceback

from as2jax.runtime import preemption, processes, stalls
from as2jax.runtime.errors import InputError

_CONFIG_HELP = "the run's config, a file or a job's name, with its argument: wikiqa_triplet:sample"


def main(argv) -> None:
  """Sets up the process and dispatches on `config.mode`."""
  from absl import flags
  from absl import logging as absl_logging

  logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
  absl_logging.set_verbosity(absl_logging.WARNING)  # orbax logs every save in ten lines
  for chatty in ("jax", "tensorboardX"):  # jax names each backend that is not there
    logging.getLogger(chatty).setLevel(logging.WARNING)
  if len(argv) > 1:
    raise InputError(f"unexpected arguments {argv[1:]}: every option is --name=value")
  given = flags.FLAGS
  processes.start(given.coordinator, given.processes, given.process_id)
  preemption.listen()
  if not processes.first():
    logging.getLogger().setLevel(logging.WARNING)  # the first process says it
  from as2jax.inference import modes
  from as2jax.runtime import profiling

  profiling.want(given.profile)
  stalls.watch()
  text = modes.run(given.config, given.workdir)
  processes.stop()
  if processes.first():
    print(text)


def entry() -> None:
  """Parses flags, runs, and turns a user's mistake into one message and status 2."""
  preemption.listen_for_interrupt()
  from absl import app, flags

  from as2jax.config import flags as flags_config

  flags_config.define(_CONFIG_HELP)
  flags.DEFINE_integer(
    "profile", 0, "trace so many steps of training into WORKDIR/profile", lower_bound=0
  )
  flags.adopt_module_key_flags(flags_config)  # so that --help lists them
  try:
    app.run(main, flags_parser=flags_config.parse)
  except InputError as error:
    print(f"{processes.name()}: {error}", file=sys.stderr)
    _end(2, str(error))
  except preemption.Preempted as stopped:
    saved = str(stopped) or "there was nothing to save"
    print(
      f"{processes.name()}: stopped by {preemption.reason()}: {saved}; the same command goes on",
      file=sys.stderr,
    )
    _leave(preemption.status())
  except Exception as error:
    if processes.count() == 1:
      raise
    traceback.print_exc()
    _end(1, f"{type(error).__name__}: {error}")


def _leave(status: int) -> None:
  """Ends this process where everything is saved; several processes wait for one another."""
  processes.stop()
  if processes.started():
    sys.exit(status)
  # A step may still run on the device: the interpreter's own end would take its memory away.
  logging.shutdown()
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(status)


def _end(status: int, text: str) -> None:
  """Ends this process after an error, and the others with it."""
  if processes.count() > 1:
    processes.leave(status, text)
  sys.exit(status)


if __name__ == "__main__":
  entry()
