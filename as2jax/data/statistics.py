"""Statistics of a split, computed in one pass with one record in memory at a time."""

import hashlib
from array import array
from collections import Counter
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
QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.99, 1.0)


class SplitStatistics:
  """Statistics of one split of questions: `take` each question, then call `asdict`.

  Memory: a hash of each question's text, and 8 bytes a (question, sentence) pair.
  """

  LENGTHS: tuple[str, ...] = ("candidates", "question_words", "candidate_words")

  def __init__(self) -> None:
    self._numbers = {question_filter: [0, 0, 0] for question_filter in KEEPS}
    self._judged = 0
    self._pairs = array("Q")  # of each, 62 bits of its hash and two of its label
    self.questions: set[int] = set()  # hashes of the texts
    self.lengths: dict[str, Counter[int]] = {name: Counter() for name in self.LENGTHS}
    self._digests: dict[str, Any] = {}  # by the kind of record

  def take(self, record: Any) -> None:
    """Count one more record."""
    kind = type(record).__name__
    self._digests.setdefault(kind, hashlib.sha256()).update(line(record))
    self._count(record)

  def _count(self, question: Question) -> None:
    positives, pairs = len(question.positives), len(question.candidates)
    for question_filter, keeps in KEEPS.items():
      if keeps(question):
        numbers = self._numbers[question_filter]
        for i, number in enumerate((1, pairs, positives)):
          numbers[i] += number
    self.questions.add(short_hash(question.text))
    self.lengths["candidates"][pairs] += 1
    self.lengths["question_words"][len(question.text.split())] += 1
    for candidate in question.candidates:
      self._judged += candidate.label != UNKNOWN
      self.lengths["candidate_words"][len(candidate.text.split())] += 1
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
    return {name: Counts(*numbers) for name, numbers in self._numbers.items()}

  @property
  def positive_share(self) -> float | None:
    """Return the share of positives among judged pairs, None without any."""
    return self._numbers["all"][2] / self._judged if self._judged else None

  def asdict(self) -> dict[str, Any]:
    """Return the statistics, ready for JSON."""
    codes = np.unique(np.frombuffer(self._pairs, np.uint64))
    judged = codes[codes & np.uint64(3) != 0] >> np.uint64(2)
    return {
      "question_filters": {name: counts.asdict() for name, counts in self.counts.items()},
      "positive_share": self.positive_share,
      "duplicate_pairs": len(self._pairs) - len(np.unique(codes >> np.uint64(2))),
      "contradictory_pairs": len(judged) - len(np.unique(judged)),
      **{name: quantiles(lengths) for name, lengths in self.lengths.items()},
    }


class PoolStatistics(SplitStatistics):
  """Statistics of a split of retrieval data: first `take` its passages, then its queries."""

  LENGTHS = ("answers", "question_words", "candidate_words")
  positive_share = None

  def __init__(self) -> None:
    super().__init__()
    self._entries = self._asked = self._answers = 0
    self._passages: set[int] = set()

  def _count(self, record: Passage | Query) -> None:
    words = len(record.text.split())
    if isinstance(record, Passage):
      self._entries += 1
      self._passages.add(short_hash(record.text))
      self.add_pair(f"{record.paragraph}\0{record.text}", UNKNOWN)
      self.lengths["candidate_words"][words] += 1
    else:
      self._asked += 1
      self._answers += len(record.answers)
      self.questions.add(short_hash(record.text))
      self.lengths["question_words"][words] += 1
      self.lengths["answers"][len(record.answers)] += 1

  @property
  def counts(self) -> dict[str, Counts | PoolCounts]:
    """Return `pool` -> counts so far."""
    texts = len(self._passages), len(self.questions)
    return {"pool": PoolCounts(self._entries, texts[0], self._answers, self._asked, texts[1])}


def quantiles(lengths: Mapping[int, int]) -> dict[str, float]:
  """Return quantiles of values given as value -> how often (numpy's linear interpolation)."""
  if not lengths:
    return {}
  values = np.asarray(sorted(lengths))
  ends = np.cumsum([lengths[int(value)] for value in values])
  result = {}
  for quantile in QUANTILES:
    place = quantile * (ends[-1] - 1)
    at = np.searchsorted(ends, [np.floor(place), np.ceil(place)], side="right")
    low, high = values[at]
    result[f"{quantile:g}"] = float(low + (high - low) * (place - np.floor(place)))
  return result


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
