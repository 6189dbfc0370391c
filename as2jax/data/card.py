"""The card of a data set: its statistics, and its counts against the published ones."""

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from etils import epath

from as2jax.data import dataset as datasets
from as2jax.data import tables, user_files
from as2jax.data.dataset import SPECS, Dataset
from as2jax.data.source import located
from as2jax.data.user_files import OwnFile, Problems
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import cache_folder, data_folder
from as2jax.runtime.streams import visible

UNLABELLED = "no labels: it can be ranked, or trained on where every answer is right (recipe fast)"
VERDICTS = ("differs", "documented", "match", "")  # on counts, the worst first


def data_card(dataset: Dataset) -> dict[str, Any]:
  """Return the statistics of a data set, ready for JSON.

  Per split: questions, pairs and positives under each question filter (`clean` = the dataset's
  own), or the numbers of a pool; fingerprint, share of positives among judged pairs, lengths in
  words, (question, sentence) pairs that repeat an earlier one and pairs that are labelled both 0 and
  1, whether its files have the official content, and the published counts. Over splits: question
  texts that two of them share. Of a prepared dataset nothing is read again.

  `verdict` is `match`, `documented` (other counts than published, known and explained in `why`) or
  `differs`, "" where nothing is published.
  """
  spec = SPECS.get(dataset.name)
  statistics, overlap = dataset.facts()
  splits = {}
  for name, of_split in statistics.items():
    filters = dict(of_split["question_filters"])
    published = spec.published.get(name, {}) if spec else {}
    verdicts = {}
    for question_filter, numbers in published.items():
      counts = type(numbers)(**filters[question_filter])
      verdicts[question_filter] = spec.verdict(name, question_filter, counts)
    if "pool" not in filters:
      filters["clean"] = filters[dataset.clean]
    splits[name] = {
      **of_split,
      "question_filters": filters,
      "published": {name: counts.asdict() for name, counts in published.items()},
      "verdicts": verdicts,
      "verdict": _worst(verdicts.values()),
      "fingerprint": dataset.fingerprints[name],
      "content": dataset.contents.get(name, "unknown"),
    }
    if name in dataset.forms:
      splits[name]["form"] = dataset.forms[name]
  verdict = _worst([of_split["verdict"] for of_split in splits.values()])
  return {
    "name": dataset.name,
    "source": dataset.source,
    "clean": dataset.clean,
    "official": dataset.official,
    "splits": splits,
    "missing": {split: list(names) for split, names in dataset.missing.items()},
    "overlap": dict(overlap),
    "verdict": verdict,
    "why": spec.why if spec and verdict == "documented" else "",
  }


def _worst(verdicts: Collection[str]) -> str:
  return min(verdicts, key=VERDICTS.index, default="")


def text_of(card: Mapping, further: Sequence[str] = ()) -> str:
  """Format the statistics of `data_card` for a terminal, with what is wrong, and what is so `further`."""
  rows: list[tuple] = []
  notes = []
  for split, its in card["splits"].items():
    for question_filter, numbers in its["question_filters"].items():
      rows = rows or [("split", "question_filter", *numbers, "published", "")]
      official = its["published"].get(question_filter, {}).values()
      stated = "/".join("–" if number is None else str(number) for number in official)
      verdict = its["verdicts"].get(question_filter, "").replace("differs", "DIFFERS")
      if question_filter == "clean":
        question_filter += f" (= {card['clean']})"
      rows.append((split, question_filter, *numbers.values(), stated, verdict))
    told = []
    if its["positive_share"] is not None:
      told.append(f"{its['positive_share']:.2%} of the judged candidates are right")
    for name in ("candidates", "answers", "question_words", "candidate_words"):
      if name in its:
        lengths = f"{its[name]['median']:g} in the median, at most {its[name]['largest']}"
        told.append(f"{name.replace('_', ' ')}: {lengths}")
    notes.append(f"{split}: {'; '.join(told)}")
  said = {"": "there are no published ones", "match": "as published", "differs": "not as published"}
  known = said.get(card["verdict"], f"not as published, for a known reason: {card['why']}")
  notes.append(f"counts of {card['name']}: {known}")
  problems = [*wrong(card), *further]
  notes.append("to look at:" if problems else "nothing is wrong")
  notes += [f"  {problem}" for problem in problems]
  columns = list(zip(*rows))
  widths = [max(len(str(cell)) for cell in column) for column in columns]
  lines = [f"{card['name']} from {card['source']}"]
  for row in rows:
    lines.append("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths)).rstrip())
  return "\n".join([*lines, *notes])


def wrong(card: Mapping) -> list[str]:
  """Write a line for each thing that is wrong with a data set, or that makes its figures say less."""
  lines = misleading(card)
  for pair, number in card["overlap"].items():
    if number and "train" not in pair.split("+"):
      lines.append(f"{card['name']}: {number} question texts stand in {pair.replace('+', ' and ')}")
  for split, its in card["splits"].items():
    where = f"{card['name']} {split}"
    if number := its["duplicate_pairs"]:
      lines.append(f"{where}: {number} (question, sentence) pairs repeat an earlier one")
    if its.get("content") == "other":  # cards of earlier versions have fewer keys
      lines.append(f"{where}: the files differ from the official ones (SHA-256)")
    for name, verdict in its["verdicts"].items():
      if verdict == "differs":
        lines.append(f"{where}: not the published number of questions, pairs or positives ({name})")
  for split, names in card.get("missing", {}).items():
    lines.append(f"{card['name']} {split}: {', '.join(names)} is missing")
  return lines


def misleading(card: Mapping) -> list[str]:
  """Write a line for each split with pairs labelled both 0 and 1, or with question texts of train."""
  lines = []
  for split, its in card["splits"].items():
    if number := its.get("contradictory_pairs"):
      pairs = f"{number} (question, sentence) pairs are labelled both 0 and 1"
      lines.append(f"{card['name']} {split}: {pairs}")
  for pair, number in card["overlap"].items():
    splits = pair.split("+")
    if number and "train" in splits:
      splits.remove("train")
      lines.append(
        f"{card['name']}: {number} question texts of {splits[0]} stand in train, too, so that figures "
        f"on {splits[0]} say less of new questions"
      )
  return lines


def check(name: str, options: dict[str, Any], *, as_json: bool) -> int:
  """Print the card of one data set, or of `all`; return 0, 1 (counts differ) or 2 (a file is wrong).

  `options` are those of `dataset.load`. Raises InputError for absent or wrong files of one data set.
  """
  if name == "all":
    return check_all(options, as_json=as_json)
  card = data_card(datasets.load(name, pool=None, **options))
  print(json.dumps(card, ensure_ascii=False) if as_json else text_of(card))
  return int(card["verdict"] == "differs")


def check_files(
  paths: Sequence[str], columns: str = "", *, drop: bool = False, as_json: bool = False
) -> int:
  """Print the card of a user's own files: one data set, each file a split, called as its file.

  For `columns` and `drop` see `user_files.read`, also for its errors. Returns 0.
  """
  read, whole = {}, []
  for path in paths:
    if not tables.is_hub(path):
      whole.append(path)
      continue
    for split in tables.hub_splits(path):
      whole.append(tables.hub_address(path, split))
  for path in whole:
    name = epath.Path(path).name.partition(".")[0]
    own = user_files.read(path, labelled=None, columns=columns, drop=drop)
    read[path if name in read else name] = own
  splits = {split: own.questions for split, own in read.items()}
  forms = {split: own.form for split, own in read.items()}
  card = data_card(datasets.of_questions("files", splits, ", ".join(paths), forms))
  told, forms = [], []
  for split, own in read.items():
    card["splits"][split] |= {"rows": asdict(own.problems)}
    if str(own.problems):
      told.append(f"{split}: {own.problems}")
    if own.form:
      forms.append(f"{split}: {own.form}")
    else:
      told.append(f"{split}: {UNLABELLED}")
  print(
    json.dumps(card, ensure_ascii=False) if as_json else "\n".join([*forms, text_of(card, told)])
  )
  return 0


def convert(
  source: str, target: str, columns: str = "", *, drop: bool = False, excel: bool = False
) -> str:
  """Write the rows of a user's file, or of a split `NAME:SPLIT`, in the form of another; say what.

  Raises InputError: see `user_files.read`; or a target that is no table, or the source itself.
  """
  tables.check_target(target, "the target", source=source)
  if datasets.is_named(source):
    data = datasets.by_address(source, columns=columns, drop=drop)
    own = OwnFile(data.splits[data.split], {}, Problems(), user_files.LABELLED)
  else:
    own = user_files.read(source, labelled=None, columns=columns, drop=drop)
  rows = list(user_files.rows(own))
  tables.write(target, rows, "the target", tables.separator(source) if excel else "")
  written = len({row["question_id"] for row in rows})
  left_out = len(own.questions) - written
  told = f"; {left_out} questions without candidates are left out" if left_out else ""
  return f"{target} ({written} questions, {len(rows)} candidates{told})"


def check_all(options: dict[str, Any], *, as_json: bool) -> int:
  """Print the card of every data set that is there; nothing is downloaded.

  Returns 2 if a file that is there is wrong, else 1 if counts differ, else 0; absent data are none of these.
  """
  cards, absent, status = {}, {}, 0
  root, downloads = data_folder(options["root"]), cache_folder(options["cache"]) / "downloads"
  for name, spec in SPECS.items():
    try:
      source = located(spec, root, downloads / name)
      if source.files:
        cards[name] = data_card(datasets.load(name, pool=None, **options | {"download": False}))
        status = max(status, int(cards[name]["verdict"] == "differs"))
      else:
        absent[name] = source.lacks
    except InputError as error:
      status = 2
      print(visible(f"{name}: {error}"), file=sys.stderr)
  if as_json:
    print(json.dumps({"found": cards, "absent": absent}))
    return status
  for card in cards.values():
    print(text_of(card), end="\n\n")
  for name, missing in absent.items():
    print(f"absent: {name} (no {', '.join(missing)})")
  return status
