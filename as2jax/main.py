"""python -m as2jax.main --config=configs/wikiqa_triplet.py --workdir=runs/x."""

import logging
import sys

from absl import app, flags
from absl import logging as absl_logging

from as2jax import allocator
from as2jax.errors import InputError

_CONFIG_HELP = "file of the run's config, with its argument: configs/wikiqa_triplet.py:sample"


def main(argv) -> None:
  """Sets up the process and dispatches on `config.mode`."""
  logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
  absl_logging.set_verbosity(absl_logging.WARNING)  # orbax logs every save in ten lines
  for chatty in ("jax", "tensorboardX"):  # jax names each backend that is not there
    logging.getLogger(chatty).setLevel(logging.WARNING)
  if len(argv) > 1:
    raise InputError(f"unexpected arguments {argv[1:]}: every option is --name=value")
  from as2jax import modes
  print(modes.run(flags.FLAGS.config, flags.FLAGS.workdir))


def entry() -> None:
  """Parses flags, runs, and turns a user's mistake into one message and status 2."""
  from as2jax import flags_config
  flags_config.define(_CONFIG_HELP)
  flags.adopt_module_key_flags(flags_config)  # so that --help lists them
  try:
    app.run(main, flags_parser=flags_config.parse)
  except InputError as error:
    print(f"as2jax: {error}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
  allocator.start_with_huge_pages("as2jax.main", sys.argv[1:])
  entry()
