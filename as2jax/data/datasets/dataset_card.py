"""The dataset card: statistics of a dataset and a comparison with the published counts."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from as2jax.data.datasets.dataset import SPECS, Dataset, PoolDataset
from as2jax.data.datasets.files_on_disk import Counts, Spec, Tally
from as2jax.data.datasets.pool import PoolCounts
from as2jax.data.datasets.statistics import KEEPS, QUANTILES, SplitStatistics
from as2jax.data.record import Question

VERDICTS = ("differs", "documented", "match")  # the worst first
LENGTHS = ("candidates", "answers", "question_words", "candidate_words")


def passport(dataset: Dataset | PoolDataset) -> dict:
  """Statistics of `dataset`, ready for JSON.

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
    "note": getattr(spec, "note", ""),  # pools have none
  }


def count(questions: Iterable[Question], question_filter: str) -> Counts:
  """Questions, pairs and positives of those questions that `question_filter` keeps (see `KEEPS`)."""
  tally = Tally(filter(KEEPS[question_filter], questions))
  for _ in tally:
    pass
  return tally.counts


def gathered(splits: Mapping[str, Sequence[Question]]) -> tuple[dict, dict]:
  """The statistics of each split, and the number of question texts that each two share."""
  statistics = {}
  for name, questions in splits.items():
    statistics[name] = SplitStatistics()
    for question in questions:
      statistics[name].take(question)
  overlap = {
    f"{a}+{b}": statistics[a].questions.shared(statistics[b].questions)
    for a, b in combinations(statistics, 2)
  }
  return {name: of_split.asdict() for name, of_split in statistics.items()}, overlap


def _split(
  statistics: Mapping[str, Any], dataset: Dataset | PoolDataset, name: str, spec: Spec | None
) -> dict:
  counts = {
    question_filter: _counts(numbers)
    for question_filter, numbers in statistics["question_filters"].items()
  }
  published = spec.published.get(name, {}) if spec else {}
  verdicts = {
    question_filter: spec.verdict(name, question_filter, counts[question_filter])
    for question_filter in published
  }
  verdict = _worst(verdicts.values())
  question_filters = {
    question_filter: numbers.asdict() for question_filter, numbers in counts.items()
  }
  return {
    **statistics,
    "question_filters": question_filters
    | ({} if "pool" in counts else {"clean": question_filters[dataset.clean]}),
    "published": {
      question_filter: numbers.asdict() for question_filter, numbers in published.items()
    },
    "verdicts": verdicts,
    "verdict": verdict,
    "matches": verdict == "match" if verdict else None,
    "fingerprint": dataset.fingerprints[name],
    "content": dataset.contents.get(name, "unknown"),
  }


def _counts(numbers: Mapping[str, int | None]) -> Counts | PoolCounts:
  return PoolCounts(**numbers) if "entries" in numbers else Counts(**numbers)


def _worst(verdicts: Iterable[str]) -> str:
  present = set(verdicts)
  return next((verdict for verdict in VERDICTS if verdict in present), "")


def table(card: Mapping) -> str:
  """Formats the statistics from `passport` for a terminal."""
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
  """One line for each split in which a pair is labelled both 0 and 1."""
  numbers = {split: its["contradictory_pairs"] for split, its in card["splits"].items()}
  return [
    f"{card['name']} {split}: {number} (question, sentence) pairs are labelled both 0 and 1"
    for split, number in numbers.items()
    if number
  ]


def shared_with_training(card: Mapping) -> list[str]:
  """One line for each split that has question texts of the split train."""
  others = {
    pair.removeprefix("train+").removesuffix("+train"): number
    for pair, number in card["overlap"].items()
    if number and (pair.startswith("train+") or pair.endswith("+train"))
  }
  return [
    f"{card['name']}: {number} question texts of {split} stand in train, too, so that figures on {split} "
    "say less of new questions"
    for split, number in others.items()
  ]


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
      stated = str(_counts(official)) if official else ""
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
