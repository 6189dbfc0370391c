"""`python -m as2jax.data --check NAME`: the passport of a dataset; status 1 where counts differ."""

import argparse
import json
import sys
from collections.abc import Sequence

from as2jax.data.dataset import SPECS, load
from as2jax.data.passport import passport, table
from as2jax.errors import InputError


def main(arguments: Sequence[str] | None = None) -> int:
  """Prints the passport; returns the exit status: 0, 1 (counts differ) or 2 (bad input)."""
  parser = argparse.ArgumentParser(prog="python -m as2jax.data", description=__doc__)
  parser.add_argument("--check", metavar="NAME", required=True, help=f"one of {', '.join(SPECS)}")
  parser.add_argument("--root", default="", help="folder of the data (default: $AS2JAX_DATA)")
  parser.add_argument("--cache", default="", help="folder of prepared copies ($AS2JAX_CACHE)")
  parser.add_argument("--no-download", action="store_true", help="never fetch the public archive")
  parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
  flags = parser.parse_args(arguments)
  try:
    dataset = load(
      flags.check, root=flags.root, cache=flags.cache, download=not flags.no_download, check=False
    )
  except InputError as error:
    print(error, file=sys.stderr)
    return 2
  facts = passport(dataset)
  print(json.dumps(facts, indent=2) if flags.json else table(facts))
  return 1 if facts["matches"] is False else 0


if __name__ == "__main__":
  sys.exit(main())
