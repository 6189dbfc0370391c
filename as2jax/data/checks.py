"""The card of a data set or of own files (`as2jax data check`), and `as2jax data convert`."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from etils import epath

from as2jax.data import tables, user_files
from as2jax.data.datasets import named
from as2jax.data.datasets.dataset import SPECS, load_any
from as2jax.data.datasets.dataset_card import count_table, passport, table
from as2jax.data.datasets.files_on_disk import lacking, located
from as2jax.data.user_files import OwnFile, Problems
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


def check_files(
  paths: Sequence[str], columns: str = "", *, drop: bool = False, as_json: bool = False
) -> int:
  """Prints the card of a person's own files: one data set, each file a split.

  Args:
    paths: of the files; each split is called as its file, without what follows the first dot.
    columns: `question=query,…`, where the columns have none of the common names.
    drop: whether rows without text and repeated ones are left out before they are counted.

  Returns:
    0, or 1 where rows have no text, with which no run would begin.

  Raises:
    InputError: a file that is wrong otherwise.

  """
  data, read = named.own_files(_by_name(paths), columns=columns, drop=drop)
  card = passport(data)
  for split, own in read.items():
    card["splits"][split]["rows"] = {
      "read": own.problems.rows,
      **{
        kind: list(getattr(own.problems, kind)) for kind in ("empty", "repeated", "contradictory")
      },
    }
    card["splits"][split]["labelled"] = own.labelled
  if as_json:
    print(json.dumps(card, ensure_ascii=False))
  else:
    told = [f"{split}: {own.problems}" for split, own in read.items() if str(own.problems)]
    told += [
      f"{split} has no labels: it can be ranked alone"
      for split, own in read.items()
      if not own.labelled
    ]
    advice = "the rows without text are left out here: mend them, or use --drop"
    empty = any(own.problems.empty for own in read.values()) and not drop
    print("\n".join([table(card), *told, *[advice] * empty]))
  return int(not drop and any(own.problems.empty for own in read.values()))


def _by_name(paths: Sequence[str]) -> dict[str, str]:
  named_paths: dict[str, str] = {}
  for path in paths:
    name = epath.Path(path).name.partition(".")[0]
    if name in named_paths:
      name = path
    if name in named_paths:
      raise InputError(f"{path} is given twice")
    named_paths[name] = path
  return named_paths


def convert(source: str, target: str, columns: str = "", *, drop: bool = False) -> str:
  """Writes the rows of a person's file, or of a split `NAME:SPLIT`, in the form of another.

  Returns:
    What was written, in words.

  Raises:
    InputError: see `user_files.read`; or a target that is no table, or the source itself.

  """
  tables.check_target(target, "the target", source=source)
  if named.is_named(source):
    data = named.by_address(source, columns=columns, drop=drop)
    own = OwnFile(data.splits[data.split], {}, Problems(), True)
  else:
    own = user_files.read(source, labelled=None, columns=columns, drop=drop)
  rows = list(user_files.rows(own))
  tables.write(target, rows, "the target")
  written = len({row["question_id"] for row in rows})
  left_out = len(own.questions) - written
  told = f"; {left_out} questions without candidates are left out" if left_out else ""
  return f"{target} ({written} questions, {len(rows)} candidates{told})"


def check_all(options: dict[str, Any], *, as_json: bool) -> int:
  """The counts of every dataset that is there; nothing is downloaded.

  Returns:
    2 if a file that is there is wrong, else 1 if counts differ, else 0. An absent dataset is none
    of these.

  """
  passports, absent, wrong = {}, {}, []
  root, downloads = data_folder(options["root"]), cache_folder(options["cache"]) / "downloads"
  for name, spec in SPECS.items():
    try:
      if not located(spec, root, downloads / name):
        absent[name] = lacking(spec, root, downloads / name)
        continue
      passports[name] = passport(load_any(name, **options | {"download": False}))
    except InputError as error:
      wrong.append(f"{name}: {error}")
      continue
    if not as_json:
      entry = passports[name]
      print(
        "\n".join(
          [
            f"{name}: {SHOWN[entry['verdict']]} ({entry['source']})",
            *count_table(entry),
            *([entry["why"]] if entry["why"] else []),
            *(f"no {', '.join(files)} ({split})" for split, files in entry["missing"].items()),
            "",
          ]
        )
      )
  if as_json:
    print(json.dumps({"found": passports, "absent": absent}))
  else:
    differ = [name for name, entry in passports.items() if entry["verdict"] == "differs"]
    print(f"{len(passports)} checked" + (f", counts differ: {', '.join(differ)}" if differ else ""))
    for name, missing in absent.items():
      print(f"absent: {name} (no {', '.join(missing)})")
  for message in wrong:
    print(message, file=sys.stderr)
  return 2 if wrong else int(any(entry["verdict"] == "differs" for entry in passports.values()))
