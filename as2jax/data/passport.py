"""The passport of a dataset: what it holds, and whether that is what was published."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np

from as2jax.data.dataset import SPECS, Dataset
from as2jax.data.record import UNKNOWN, Question
from as2jax.data.source import Counts, Tally

KEEPS: dict[str, Callable[[Question], bool]] = {
  "all": lambda question: True,
  "answerable": lambda question: bool(question.positives),
  "both": lambda question: bool(question.positives and question.negatives),
}
QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.99, 1.0)


def passport(dataset: Dataset) -> dict:
  """The facts about `dataset`, ready for JSON.

  Per split: questions, pairs and positives under each protocol (`clean` = the dataset's own),
  fingerprint, share of positives among judged pairs, quantiles of the lengths in words (between
  white space), (question, sentence) pairs that repeat an earlier one, and the published counts.
  Over splits: question texts that two of them share. `matches` is None where nothing is published.
  """
  spec = SPECS.get(dataset.name)
  published = spec.published if spec else {}
  splits = {
    name: _split(questions, dataset, name, published.get(name, {}))
    for name, questions in dataset.splits.items()
  }
  verdicts = [facts["matches"] for facts in splits.values() if facts["matches"] is not None]
  return {
    "name": dataset.name,
    "source": dataset.source,
    "clean": dataset.clean,
    "splits": splits,
    "overlap": _overlap(dataset.splits),
    "matches": all(verdicts) if verdicts else None,
  }


def count(questions: Iterable[Question], protocol: str) -> Counts:
  """Questions, pairs and positives of those questions that `protocol` keeps (see `KEEPS`)."""
  tally = Tally(filter(KEEPS[protocol], questions))
  for _ in tally:
    pass
  return tally.counts


def _split(
  questions: Sequence[Question], dataset: Dataset, name: str, published: Mapping[str, Counts]
) -> dict:
  counts = {protocol: count(questions, protocol) for protocol in KEEPS}
  labels = [c.label for question in questions for c in question.candidates if c.label != UNKNOWN]
  pairs = Counter((question.text, c.text) for question in questions for c in question.candidates)
  agree = [stated.agrees(counts[protocol]) for protocol, stated in published.items()]
  found = {protocol: numbers.asdict() for protocol, numbers in counts.items()}
  return {
    "protocols": found | {"clean": found[dataset.clean]},
    "published": {protocol: numbers.asdict() for protocol, numbers in published.items()},
    "matches": all(agree) if agree else None,
    "fingerprint": dataset.fingerprints[name],
    "positive_share": sum(labels) / len(labels) if labels else None,
    "duplicate_pairs": sum(pairs.values()) - len(pairs),
    "candidates": _quantiles(len(question.candidates) for question in questions),
    "question_words": _quantiles(len(question.text.split()) for question in questions),
    "candidate_words": _quantiles(
      len(c.text.split()) for question in questions for c in question.candidates
    ),
  }


def _quantiles(values: Iterable[int]) -> dict[str, float]:
  values = np.fromiter(values, dtype=np.int64)
  if not values.size:
    return {}
  numbers = np.quantile(values, QUANTILES)
  return {f"{quantile:g}": float(number) for quantile, number in zip(QUANTILES, numbers)}


def _overlap(splits: Mapping[str, Sequence[Question]]) -> dict[str, int]:
  texts = {name: {question.text for question in questions} for name, questions in splits.items()}
  return {f"{a}+{b}": len(texts[a] & texts[b]) for a, b in combinations(texts, 2)}


def table(facts: Mapping) -> str:
  """`facts` of `passport` as text for a terminal."""
  rows = [("split", "protocol", "questions", "pairs", "positives", "published", "")]
  for split, its in facts["splits"].items():
    for protocol, numbers in its["protocols"].items():
      found, official = Counts(**numbers), its["published"].get(protocol)
      stated = Counts(**official) if official else None
      verdict = "" if stated is None else "ok" if stated.agrees(found) else "DIFFERS"
      if protocol == "clean":
        protocol += f" (= {facts['clean']})"
      numbers = [str(number) for number in numbers.values()]
      rows.append((split, protocol, *numbers, str(stated or ""), verdict))
  text = [f"{facts['name']} from {facts['source']}", "", *_aligned(rows, "<<>>><<"), ""]
  rows = [("split", "positive", "duplicates", "quantiles", *(f"{q:g}" for q in QUANTILES))]
  for split, its in facts["splits"].items():
    share = its["positive_share"]
    first = (split, "" if share is None else f"{share:.2%}", str(its["duplicate_pairs"]))
    for name in ("candidates", "question_words", "candidate_words"):
      values = [f"{value:g}" for value in its[name].values()] or [""] * len(QUANTILES)
      rows.append((*first, name.replace("_", " "), *values))
      first = ("", "", "")
  text += _aligned(rows, "<>><" + ">" * len(QUANTILES))
  text += ["", "questions in two splits: " + ", ".join(
    f"{pair} {number}" for pair, number in facts["overlap"].items()
  )]
  text += [f"fingerprint {split} {its['fingerprint']}" for split, its in facts["splits"].items()]
  verdicts = {True: "counts agree with the published ones", None: "no counts are published"}
  text.append(verdicts.get(facts["matches"], "COUNTS DIFFER from the published ones"))
  return "\n".join(text)


def _aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
    "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)).rstrip()
    for row in rows
  ]
