"""The flags of `main`, with every mistake in them as one clear message."""

import sys

from absl import flags
from ml_collections import config_flags

from as2jax.errors import InputError


def define(help_text: str) -> None:
  """Defines --config and --workdir."""
  config_flags.DEFINE_config_file("config", None, help_text, lock_config=True)
  flags.DEFINE_string("workdir", "", "folder of the run: checkpoints, logs, results")


def parse(argv: list[str]) -> list[str]:
  """Parses the command line.

  Raises:
    InputError: a missing file, an unknown key, a value of the wrong type.
  """
  if not any(a.startswith(("--config=", "-config=")) or a in ("--config", "--help", "--helpfull")
             for a in argv[1:]):
    raise InputError("--config is missing: name a config, --config=configs/wikiqa_triplet.py "
                     "(or …py:sample, which needs no data)")
  try:
    return flags.FLAGS(argv)
  except (flags.Error, AttributeError, KeyError, TypeError, ValueError, OSError,
          ImportError) as error:
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    raise InputError(f"{text} (command: {' '.join(argv[1:])})") from error
  except SystemExit:
    sys.exit(0)
