"""`python -m as2jax.data --check NAME`: the passport of a dataset; status 1 where counts differ.

`--check all` prints the counts of every dataset whose files are there, and lists the others.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from as2jax.data.datasets.dataset import SPECS, load_any
from as2jax.data.datasets.dataset_card import count_table, passport, table
from as2jax.data.datasets.files_on_disk import lacking, located
from as2jax.runtime.errors import InputError
from as2jax.runtime.folders import cache_folder, data_folder

SHOWN = {"match": "ok", "documented": "as documented", "differs": "DIFFERS", "": "none published"}


def main(arguments: Sequence[str] | None = None) -> int:
  """Prints the passport; returns the exit status: 0, 1 (counts differ) or 2 (bad input)."""
  parser = argparse.ArgumentParser(prog="python -m as2jax.data", description=__doc__)
  parser.add_argument(
    "--check", metavar="NAME", required=True, help=f"all, or one of {', '.join(SPECS)}"
  )
  parser.add_argument("--root", default="", help="folder of the data (default: $AS2JAX_DATA)")
  parser.add_argument("--cache", default="", help="folder of prepared copies ($AS2JAX_CACHE)")
  parser.add_argument("--no-download", action="store_true", help="never fetch the public archive")
  parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
  flags = parser.parse_args(arguments)
  options = {
    "root": flags.root,
    "cache": flags.cache,
    "download": not flags.no_download,
    "check": False,
  }
  if flags.check == "all":
    return check_all(options, as_json=flags.json)
  try:
    facts = passport(load_any(flags.check, **options))
  except InputError as error:
    print(error, file=sys.stderr)
    return 2
  print(json.dumps(facts, indent=2) if flags.json else table(facts))
  return int(facts["verdict"] == "differs")


def check_all(options: dict[str, Any], *, as_json: bool) -> int:
  """The counts of every dataset that is there; nothing is downloaded.

  Returns:
    2 if a file that is there is wrong, else 1 if counts differ, else 0. An absent dataset is none
    of these.

  """
  found, absent, wrong = {}, {}, []
  root, downloads = data_folder(options["root"]), cache_folder(options["cache"]) / "downloads"
  for name, spec in SPECS.items():
    try:
      if not located(spec, root, downloads / name):
        absent[name] = lacking(spec, root, downloads / name)
        continue
      found[name] = passport(load_any(name, **options | {"download": False}))
    except InputError as error:
      wrong.append(f"{name}: {error}")
      continue
    if not as_json:
      facts = found[name]
      print(
        "\n".join(
          [
            f"{name}: {SHOWN[facts['verdict']]} ({facts['source']})",
            *count_table(facts),
            *([facts["why"]] if facts["why"] else []),
            *(f"no {', '.join(files)} ({split})" for split, files in facts["missing"].items()),
            "",
          ]
        )
      )
  if as_json:
    print(json.dumps({"found": found, "absent": absent}, indent=2))
  else:
    differ = [name for name, facts in found.items() if facts["verdict"] == "differs"]
    print(f"{len(found)} checked" + (f", counts differ: {', '.join(differ)}" if differ else ""))
    for name, missing in absent.items():
      print(f"absent: {name} (no {', '.join(missing)})")
  for message in wrong:
    print(message, file=sys.stderr)
  return 2 if wrong else int(any(facts["verdict"] == "differs" for facts in found.values()))


if __name__ == "__main__":
  sys.exit(main())
