"""python -m as2jax.main --config=configs/wikiqa_triplet.py --workdir=runs/x."""

import sys

from as2jax.commands import process
from as2jax.runtime import preemption, processes
from as2jax.runtime.errors import InputError

_CONFIG_HELP = "the run's config, a file or a job's name, with its argument: wikiqa_triplet:sample"


def main(argv) -> None:
  """Sets up the process and dispatches on `config.mode`."""
  from absl import flags

  if len(argv) > 1:
    raise InputError(f"unexpected arguments {argv[1:]}: every option is --name=value")
  options = flags.FLAGS
  process.begin_run(options.coordinator, options.processes, options.process_id, options.profile)
  from as2jax.inference import modes

  text = modes.run(options.config, options.workdir)
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
  status = process.guarded(lambda: app.run(main, flags_parser=flags_config.parse), raises=True)
  preemption.work_is_done()
  sys.exit(status)


if __name__ == "__main__":
  entry()
