"""python -m as2jax.main --config=configs/wikiqa_triplet.py --workdir=runs/x."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from as2jax.commands import process
from as2jax.runtime import preemption, processes, streams
from as2jax.runtime.errors import InputError
from as2jax.runtime.version import __version__

VALUE = "--config."  # before KEY=VALUE


def parse(arguments: Sequence[str]) -> tuple[Any, argparse.Namespace]:
  """Read a command line: the config with its overrides, and the other options.

  InputError: a missing config, an unknown option or key, a value of the wrong type.
  """
  parser = argparse.ArgumentParser(
    prog="python -m as2jax.main",
    allow_abbrev=False,
    exit_on_error=False,
    epilog="--config.KEY=VALUE sets a value of the config (as2jax list keys).",
  )
  parser.add_argument(
    "--config", help="a file or a job's name with its words: wikiqa_triplet:sample"
  )
  parser.add_argument("--workdir", default="", help="folder of the run: checkpoints, logs, results")
  parser.add_argument("--profile", type=int, default=0, help="trace so many steps of training")
  parser.add_argument(
    "--coordinator",
    default="",
    help="several processes: HOST:PORT of process 0, or auto (Slurm, Open MPI, Kubernetes)",
  )
  parser.add_argument("--processes", type=int, default=0, help="how many; 1: this host alone")
  parser.add_argument("--version", action="version", version=__version__)
  parser.add_argument("--process_id", type=int, default=-1, help="which one this is, from 0")
  parser.add_argument("--allow-code", action="store_true", help="run classes that a run names")
  try:
    options, others = parser.parse_known_args(arguments)
  except argparse.ArgumentError as error:
    raise InputError(str(error)) from error
  from as2jax.config import jobs, overrides

  if not options.config:
    raise InputError(f"--config is missing: name a config, as --config={jobs.EXAMPLE}")
  config = jobs.load(options.config, options.allow_code)
  settings = []
  for given in others:
    if not given.startswith(VALUE):
      raise InputError(
        f"there is no option {given!r}; there are --config, --workdir, --config.KEY=VALUE, --profile, "
        "--allow-code and, for several processes, --coordinator, --processes, --process_id"
      )
    settings.append(given.removeprefix(VALUE))
  return overrides.apply(config, overrides.parse(config, settings, VALUE), VALUE), options


def main(arguments: Sequence[str]) -> None:
  """Set up the process, run what `config.mode` says and print it."""
  config, options = parse(arguments)
  process.begin_run(options.coordinator, options.processes, options.process_id, options.profile)
  from as2jax.inference import modes

  text = modes.run(config, options.workdir)
  processes.stop()
  if processes.first():
    print(text)


def entry() -> None:
  """Run the command line; a user's mistake is one message and status 2."""
  streams.prepare()
  preemption.listen_for_interrupt()
  status = process.guarded(lambda: main(sys.argv[1:]), words=process.in_words_of_main)
  preemption.work_is_done()
  sys.exit(status)


if __name__ == "__main__":
  entry()
