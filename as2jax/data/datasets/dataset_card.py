"""The passport of a dataset: what it holds, and whether that is what was published."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from as2jax.data.datasets.dataset import SPECS, Dataset, PoolDataset
from as2jax.data.datasets.files_on_disk import Counts, Spec, Tally
from as2jax.data.datasets.pool import PoolCounts
from as2jax.data.datasets.statistics import KEEPS, QUANTILES, Facts
from as2jax.data.record import Question

VERDICTS = ("differs", "documented", "match")  # the worst first
LENGTHS = ("candidates", "answers", "question_words", "candidate_words")


def passport(dataset: Dataset | PoolDataset) -> dict:
  """The facts about `dataset`, ready for JSON.

  Per split: questions, pairs and positives under each question filter (`clean` = the dataset's own), or
  what a pool comes to; fingerprint, share of positives among judged pairs, quantiles of the lengths
  in words (between white space), (question, sentence) pairs that repeat an earlier one, and the
  published counts. Over splits: question texts that two of them share. Of a prepared dataset
  nothing is read again: its facts were gathered when it was prepared.

  `verdict` is `match`, `documented` (other counts than published, known and explained in `why`) or
  `differs`, "" where nothing is published; `matches` is whether it is `match`, None likewise.
  """
  spec = SPECS.get(dataset.name)
  facts, overlap = dataset.facts, dataset.overlap
  if facts is None or overlap is None:
    facts, overlap = gathered(dataset.splits)
  splits = {name: _split(its, dataset, name, spec) for name, its in facts.items()}
  verdict = _worst(its["verdict"] for its in splits.values())
  return {
    "name": dataset.name,
    "source": dataset.source,
    "clean": dataset.clean,
    "official": dataset.official,
    "splits": splits,
    "overlap": dict(overlap),
    "verdict": verdict,
    "matches": verdict == "match" if verdict else None,
    "why": spec.why if spec and verdict == "documented" else "",
  }


def count(questions: Iterable[Question], question_filter: str) -> Counts:
  """Questions, pairs and positives of those questions that `question_filter` keeps (see `KEEPS`)."""
  tally = Tally(filter(KEEPS[question_filter], questions))
  for _ in tally:
    pass
  return tally.counts


def gathered(splits: Mapping[str, Sequence[Question]]) -> tuple[dict, dict]:
  """The facts of each split, and how many question texts each two share."""
  found = {}
  for name, questions in splits.items():
    found[name] = Facts()
    for question in questions:
      found[name].take(question)
  overlap = {
    f"{a}+{b}": found[a].questions.shared(found[b].questions) for a, b in combinations(found, 2)
  }
  return {name: its.asdict() for name, its in found.items()}, overlap


def _split(
  its: Mapping[str, Any], dataset: Dataset | PoolDataset, name: str, spec: Spec | None
) -> dict:
  found = {
    question_filter: _counts(numbers)
    for question_filter, numbers in its["question_filters"].items()
  }
  published = spec.published.get(name, {}) if spec else {}
  verdicts = {
    question_filter: spec.verdict(name, question_filter, found[question_filter])
    for question_filter in published
  }
  verdict = _worst(verdicts.values())
  question_filters = {
    question_filter: numbers.asdict() for question_filter, numbers in found.items()
  }
  return {
    **its,
    "question_filters": question_filters
    | ({} if "pool" in found else {"clean": question_filters[dataset.clean]}),
    "published": {
      question_filter: numbers.asdict() for question_filter, numbers in published.items()
    },
    "verdicts": verdicts,
    "verdict": verdict,
    "matches": verdict == "match" if verdict else None,
    "fingerprint": dataset.fingerprints[name],
  }


def _counts(numbers: Mapping[str, int | None]) -> Counts | PoolCounts:
  return PoolCounts(**numbers) if "entries" in numbers else Counts(**numbers)


def _worst(verdicts: Iterable[str]) -> str:
  found = set(verdicts)
  return next((verdict for verdict in VERDICTS if verdict in found), "")


def table(facts: Mapping) -> str:
  """`facts` of `passport` as text for a terminal."""
  text = [f"{facts['name']} from {facts['source']}", "", *count_table(facts), ""]
  rows = [("split", "positive", "duplicates", "quantiles", *(f"{q:g}" for q in QUANTILES))]
  for split, its in facts["splits"].items():
    share = its["positive_share"]
    first = (split, "" if share is None else f"{share:.2%}", str(its["duplicate_pairs"]))
    for name in LENGTHS:
      if name in its:
        values = [f"{value:g}" for value in its[name].values()] or [""] * len(QUANTILES)
        rows.append((*first, name.replace("_", " "), *values))
        first = ("", "", "")
  text += _aligned(rows, "<>><" + ">" * len(QUANTILES))
  text += [
    "",
    "questions in two splits: "
    + ", ".join(f"{pair} {number}" for pair, number in facts["overlap"].items()),
  ]
  text += [f"fingerprint {split} {its['fingerprint']}" for split, its in facts["splits"].items()]
  text.append(
    {
      "match": "counts agree with the published ones",
      "documented": f"counts are not the published ones, as documented: {facts['why']}",
      "differs": "COUNTS DIFFER from the published ones",
      "": "no counts are published",
    }[facts["verdict"]]
  )
  return "\n".join(text)


def count_table(facts: Mapping) -> list[str]:
  """The counts of every split and question_filter against the published ones."""
  first = next(iter(facts["splits"].values()))["question_filters"]
  names = tuple(next(iter(first.values())))
  rows = [("split", "question_filter", *names, "published", "")]
  shown = {"": "", "match": "ok", "documented": "documented", "differs": "DIFFERS"}
  for split, its in facts["splits"].items():
    for question_filter, numbers in its["question_filters"].items():
      official = its["published"].get(question_filter)
      stated = str(_counts(official)) if official else ""
      verdict = shown[its["verdicts"].get(question_filter, "")]
      if question_filter == "clean":
        question_filter += f" (= {facts['clean']})"
      rows.append((split, question_filter, *map(str, numbers.values()), stated, verdict))
  return _aligned(rows, "<<" + ">" * len(names) + "<<")


def _aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
    "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)).rstrip()
    for row in rows
  ]
