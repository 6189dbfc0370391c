"""Statistics of a split, computed in one pass with one record in memory at a time."""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from as2jax.data.record import UNKNOWN, Passage, Query, Question, line
from as2jax.data.source import Counts, PoolCounts

KEEPS: dict[str, Callable[[Question], bool]] = {
  "all": lambda question: True,
  "answerable": lambda question: bool(question.positives),
  "both": lambda question: bool(question.positives and question.negatives),
}


class SplitStatistics:
  """Statistics of one split of questions: `take` each question, then call `asdict`.

  Memory: a hash of each question's text, and 12 bytes a (question, sentence) pair.
  """

  LENGTHS: tuple[str, ...] = ("candidates", "question_words", "candidate_words")

  def __init__(self) -> None:
    self._numbers = {question_filter: np.zeros(3, int) for question_filter in KEEPS}
    self._pairs = array("Q")  # of each, 62 bits of its hash and two of its label
    self.questions: set[int] = set()  # hashes of the texts
    self.lengths = {name: array("I") for name in self.LENGTHS}
    self._digests: dict[str, Any] = {}  # by the kind of record

  def take(self, record: Any) -> None:
    """Count one more record."""
    kind = type(record).__name__
    self._digests.setdefault(kind, hashlib.sha256()).update(line(record))
    self._count(record)

  def _count(self, question: Question) -> None:
    numbers = 1, len(question.candidates), len(question.positives)
    for question_filter, keeps in KEEPS.items():
      if keeps(question):
        self._numbers[question_filter] += numbers
    self.questions.add(short_hash(question.text))
    self.lengths["candidates"].append(len(question.candidates))
    self.lengths["question_words"].append(len(question.text.split()))
    for candidate in question.candidates:
      self.lengths["candidate_words"].append(len(candidate.text.split()))
      self.add_pair(f"{question.text}\0{candidate.text}", candidate.label)

  def add_pair(self, pair: str, label: int) -> None:
    """Count a pair of texts, as one text, with its label."""
    self._pairs.append(short_hash(pair) & ~3 | (label - UNKNOWN))

  def fingerprint(self) -> str:
    """Return the fingerprint of the records taken (`record.fingerprint`); of two tables, of both."""
    parts = [digest.hexdigest() for digest in self._digests.values()]
    return parts[0] if len(parts) == 1 else hashlib.sha256(" ".join(parts).encode()).hexdigest()

  @property
  def counts(self) -> dict[str, Counts | PoolCounts]:
    """Return question filter -> counts so far."""
    return {name: Counts(*numbers.tolist()) for name, numbers in self._numbers.items()}

  def asdict(self) -> dict[str, Any]:
    """Return the statistics, ready for JSON."""
    pairs = np.frombuffer(self._pairs, np.uint64)
    codes = np.unique(pairs)
    judged = codes[codes & np.uint64(3) != 0] >> np.uint64(2)
    labels = pairs[pairs & np.uint64(3) != 0] & np.uint64(3)
    statistics = {
      "question_filters": {name: counts.asdict() for name, counts in self.counts.items()},
      "positive_share": float(np.mean(labels == 1 - UNKNOWN)) if len(labels) else None,
      "duplicate_pairs": len(pairs) - len(np.unique(codes >> np.uint64(2))),
      "contradictory_pairs": len(judged) - len(np.unique(judged)),
    }
    for name, lengths in self.lengths.items():
      if lengths:
        statistics[name] = {"median": float(np.median(lengths)), "largest": max(lengths)}
    return statistics


class PoolStatistics(SplitStatistics):
  """Statistics of a split of retrieval data: first `take` its passages, then its queries."""

  LENGTHS = ("answers", "question_words", "candidate_words")

  def __init__(self) -> None:
    super().__init__()
    self._passages: set[int] = set()

  def _count(self, record: Passage | Query) -> None:
    words = len(record.text.split())
    if isinstance(record, Passage):
      self._passages.add(short_hash(record.text))
      self.add_pair(f"{record.paragraph}\0{record.text}", UNKNOWN)
      self.lengths["candidate_words"].append(words)
    else:
      self.questions.add(short_hash(record.text))
      self.lengths["question_words"].append(words)
      self.lengths["answers"].append(len(record.answers))

  @property
  def counts(self) -> dict[str, Counts | PoolCounts]:
    """Return `pool` -> counts so far."""
    entries, asked = len(self.lengths["candidate_words"]), len(self.lengths["answers"])
    queries, texts = sum(self.lengths["answers"]), len(self.questions)
    return {"pool": PoolCounts(entries, len(self._passages), queries, asked, texts)}


def short_hash(text: str) -> int:
  """Return 64 bits of `text`: two of ten million texts meet with a chance of 3 in a million."""
  return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def gathered(splits: Mapping[str, Iterable[Question]]) -> tuple[dict, dict]:
  """Return the statistics of each split, and the number of question texts that each two share."""
  statistics = {}
  for name, questions in splits.items():
    statistics[name] = SplitStatistics()
    for question in questions:
      statistics[name].take(question)
  return {name: its.asdict() for name, its in statistics.items()}, overlap(statistics)


def overlap(statistics: Mapping[str, SplitStatistics]) -> dict[str, int]:
  """Return pair of splits -> number of question texts in both."""
  shared = {}
  for a, b in combinations(statistics, 2):
    shared[f"{a}+{b}"] = len(statistics[a].questions & statistics[b].questions)
  return shared
