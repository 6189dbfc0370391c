"""The card of a data set: counts beside the published ones (`as2jax data check`)."""

import json
import sys
from typing import Any

from as2jax.data.datasets.dataset import SPECS, load_any
from as2jax.data.datasets.dataset_card import count_table, passport, table
from as2jax.data.datasets.files_on_disk import lacking, located
from as2jax.runtime.errors import InputError
from as2jax.runtime.folders import cache_folder, data_folder

SHOWN = {"match": "ok", "documented": "as documented", "differs": "DIFFERS", "": "none published"}


def check(name: str, options: dict[str, Any], *, as_json: bool) -> int:
  """Prints the card of one data set, or of `all`; the exit status: 0, 1 (counts differ) or 2.

  Args:
    options: of `dataset.load_any`.

  Raises:
    InputError: files that are absent or wrong.

  """
  if name == "all":
    return check_all(options, as_json=as_json)
  card = passport(load_any(name, **options))
  print(json.dumps(card, ensure_ascii=False) if as_json else table(card))
  return int(card["verdict"] == "differs")


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
    print(json.dumps({"found": found, "absent": absent}))
  else:
    differ = [name for name, facts in found.items() if facts["verdict"] == "differs"]
    print(f"{len(found)} checked" + (f", counts differ: {', '.join(differ)}" if differ else ""))
    for name, missing in absent.items():
      print(f"absent: {name} (no {', '.join(missing)})")
  for message in wrong:
    print(message, file=sys.stderr)
  return 2 if wrong else int(any(facts["verdict"] == "differs" for facts in found.values()))
