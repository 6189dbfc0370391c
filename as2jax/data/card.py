"""The card of a data set: its statistics, and its counts against the published ones."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data import dataset as datasets
from as2jax.data import tables, user_files
from as2jax.data.dataset import SPECS, Dataset
from as2jax.data.source import Spec, lacking, located
from as2jax.data.statistics import QUANTILES, gathered
from as2jax.data.user_files import OwnFile, Problems
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import cache_folder, data_folder

VERDICTS = ("differs", "documented", "match")  # the worst first
LENGTHS = ("candidates", "answers", "question_words", "candidate_words")
SHOWN = {"match": "ok", "documented": "as documented", "differs": "DIFFERS", "": "none published"}


def data_card(dataset: Dataset) -> dict[str, Any]:
  """Return the statistics of a data set, ready for JSON.

  Per split: questions, pairs and positives under each question filter (`clean` = the dataset's
  own), or the numbers of a pool; fingerprint, share of positives among judged pairs, quantiles of
  the lengths in words (between white space), (question, sentence) pairs that repeat an earlier one
  and pairs that are labelled both 0 and 1, whether its files have the official content, and the
  published counts. Over splits: question texts that two of them share. Of a prepared
  dataset nothing is read again: its statistics were computed when it was prepared.

  `verdict` is `match`, `documented` (other counts than published, known and explained in `why`) or
  `differs`, "" where nothing is published; `matches` is whether it is `match`, None likewise.
  """
  spec = SPECS.get(dataset.name)
  statistics, overlap = dataset.statistics, dataset.overlap
  if statistics is None or overlap is None:
    statistics, overlap = gathered(dataset.splits)
  splits = {name: _split(of_split, dataset, name, spec) for name, of_split in statistics.items()}
  verdict = _worst(of_split["verdict"] for of_split in splits.values())
  return {
    "name": dataset.name,
    "source": dataset.source,
    "clean": dataset.clean,
    "official": dataset.official,
    "splits": splits,
    "missing": {split: list(names) for split, names in dataset.missing.items()},
    "overlap": dict(overlap),
    "verdict": verdict,
    "matches": verdict == "match" if verdict else None,
    "why": spec.why if spec and verdict == "documented" else "",
    "note": spec.note if spec else "",
  }


def _split(
  statistics: Mapping[str, Any], dataset: Dataset, name: str, spec: Spec | None
) -> dict[str, Any]:
  published, verdicts, stated = {}, {}, {}
  if spec:
    published = spec.published.get(name, {})
  filters = dict(statistics["question_filters"])
  for question_filter, numbers in published.items():
    counts = type(numbers)(**filters[question_filter])
    verdicts[question_filter] = spec.verdict(name, question_filter, counts)
    stated[question_filter] = numbers.asdict()
  if "pool" not in filters:
    filters["clean"] = filters[dataset.clean]
  verdict = _worst(verdicts.values())
  return {
    **statistics,
    "question_filters": filters,
    "published": stated,
    "verdicts": verdicts,
    "verdict": verdict,
    "matches": verdict == "match" if verdict else None,
    "fingerprint": dataset.fingerprints[name],
    "content": dataset.contents.get(name, "unknown"),
  }


def _worst(verdicts: Iterable[str]) -> str:
  present = set(verdicts)
  return next((verdict for verdict in VERDICTS if verdict in present), "")


def text_of(card: Mapping) -> str:
  """Format the statistics of `data_card` for a terminal."""
  text = [f"{card['name']} from {card['source']}", "", *count_table(card), ""]
  rows = [("split", "positive", "duplicates", "quantiles", *(f"{q:g}" for q in QUANTILES))]
  for split, of_split in card["splits"].items():
    share = of_split["positive_share"]
    first = (split, "" if share is None else f"{share:.2%}", str(of_split["duplicate_pairs"]))
    for name in LENGTHS:
      if name in of_split:
        values = [f"{value:g}" for value in of_split[name].values()] or [""] * len(QUANTILES)
        rows.append((*first, name.replace("_", " "), *values))
        first = ("", "", "")
  text += _aligned(rows, "<>><" + ">" * len(QUANTILES))
  shared = ", ".join(f"{pair} {number}" for pair, number in card["overlap"].items())
  text += ["", f"questions in two splits: {shared}"] if shared else [""]
  text += contradictions(card)
  text += [f"no {', '.join(names)} ({split})" for split, names in card["missing"].items()]
  text += [
    f"fingerprint {split} {of_split['fingerprint']}" for split, of_split in card["splits"].items()
  ]
  text += contents(card)
  text += [f"note: {card['note']}"] if card.get("note") else []
  text.append(
    {
      "match": "counts agree with the published ones",
      "documented": f"counts are not the published ones, as documented: {card['why']}",
      "differs": "COUNTS DIFFER from the published ones",
      "": "no counts are published",
    }[card["verdict"]]
  )
  return "\n".join(text)


def contradictions(card: Mapping) -> list[str]:
  """Write a line for each split in which a pair is labelled both 0 and 1."""
  lines = []
  for split, its in card["splits"].items():
    if number := its["contradictory_pairs"]:
      pairs = f"{number} (question, sentence) pairs are labelled both 0 and 1"
      lines.append(f"{card['name']} {split}: {pairs}")
  return lines


def shared_with_training(card: Mapping) -> list[str]:
  """Write a line for each split that has question texts of the split train."""
  lines = []
  for pair, number in card["overlap"].items():
    splits = pair.split("+")
    if number and "train" in splits:
      splits.remove("train")
      lines.append(
        f"{card['name']}: {number} question texts of {splits[0]} stand in train, too, so that figures "
        f"on {splits[0]} say less of new questions"
      )
  return lines


def contents(card: Mapping) -> list[str]:
  """What the content of the files was compared with: one line for each answer."""
  words = {
    "official": "SHA-256 of the official files",
    "other": "NOT the SHA-256 of the official files (converted, or damaged)",
    "unknown": "no official SHA-256 is known; only counts were compared",
  }
  lines = []
  for content, meaning in words.items():
    splits = [name for name, its in card["splits"].items() if its["content"] == content]
    if splits:
      lines.append(f"content of {', '.join(splits)}: {meaning}")
  return lines


def count_table(card: Mapping) -> list[str]:
  """The counts of every split and question_filter against the published ones."""
  first = next(iter(card["splits"].values()))["question_filters"]
  names = tuple(next(iter(first.values())))
  rows = [("split", "question_filter", *names, "published", "")]
  shown = {"": "", "match": "ok", "documented": "documented", "differs": "DIFFERS"}
  for split, of_split in card["splits"].items():
    for question_filter, numbers in of_split["question_filters"].items():
      official = of_split["published"].get(question_filter)
      stated = "/".join("–" if n is None else str(n) for n in official.values()) if official else ""
      verdict = shown[of_split["verdicts"].get(question_filter, "")]
      if question_filter == "clean":
        question_filter += f" (= {card['clean']})"
      rows.append((split, question_filter, *map(str, numbers.values()), stated, verdict))
  return _aligned(rows, "<<" + ">" * len(names) + "<<")


def _aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
    "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)).rstrip()
    for row in rows
  ]


def check(name: str, options: dict[str, Any], *, as_json: bool) -> int:
  """Prints the card of one data set, or of `all`; the exit status: 0, 1 (counts differ) or 2.

  Args:
    options: of `dataset.load_any`.

  Raises:
    InputError: files that are absent or wrong.

  """
  if name == "all":
    return check_all(options, as_json=as_json)
  card = data_card(datasets.load_any(name, **options))
  print(json.dumps(card, ensure_ascii=False) if as_json else text_of(card))
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
  data, read = datasets.own_files(_by_name(paths), columns=columns, drop=drop)
  card = data_card(data)
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
    print("\n".join([text_of(card), *told, *[advice] * empty]))
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
  if datasets.is_named(source):
    data = datasets.by_address(source, columns=columns, drop=drop)
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
  cards, absent, wrong = {}, {}, []
  root, downloads = data_folder(options["root"]), cache_folder(options["cache"]) / "downloads"
  for name, spec in SPECS.items():
    try:
      if not located(spec, root, downloads / name):
        absent[name] = lacking(spec, root, downloads / name)
        continue
      cards[name] = data_card(datasets.load_any(name, **options | {"download": False}))
    except InputError as error:
      wrong.append(f"{name}: {error}")
      continue
    if not as_json:
      entry = cards[name]
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
    print(json.dumps({"found": cards, "absent": absent}))
  else:
    differ = [name for name, entry in cards.items() if entry["verdict"] == "differs"]
    print(f"{len(cards)} checked" + (f", counts differ: {', '.join(differ)}" if differ else ""))
    for name, missing in absent.items():
      print(f"absent: {name} (no {', '.join(missing)})")
  for message in wrong:
    print(message, file=sys.stderr)
  return 2 if wrong else int(any(entry["verdict"] == "differs" for entry in cards.values()))
