"""Statistics of a split, computed in one pass with one record in memory at a time."""

import hashlib
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
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
_HELD = 1 << 20  # hashes held before they go to a file
_PARTS = 64  # of a file of hashes, looked at one after the other


class SplitStatistics:
  """Statistics of one split of questions: `take` each question, then call `asdict`.

  Memory: 8 bytes a question, and hashes of the (question, sentence) pairs in a temporary file.
  """

  LENGTHS: tuple[str, ...] = ("candidates", "question_words", "candidate_words")

  def __init__(self) -> None:
    self._numbers = {question_filter: [0, 0, 0] for question_filter in KEEPS}
    self._judged = 0
    self.pairs, self.questions = Pairs(), Texts()
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
    self.questions.add(question.text)
    self.lengths["candidates"][pairs] += 1
    self.lengths["question_words"][len(question.text.split())] += 1
    for candidate in question.candidates:
      self._judged += candidate.label != UNKNOWN
      self.lengths["candidate_words"][len(candidate.text.split())] += 1
      self.pairs.add(f"{question.text}\0{candidate.text}", candidate.label)

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
    return {
      "question_filters": {name: counts.asdict() for name, counts in self.counts.items()},
      "positive_share": self.positive_share,
      **self.pairs.asdict(),
      **{name: quantiles(lengths) for name, lengths in self.lengths.items()},
    }


class PoolStatistics(SplitStatistics):
  """Statistics of a split of retrieval data: first `take` its passages, then its queries."""

  LENGTHS = ("answers", "question_words", "candidate_words")
  positive_share = None

  def __init__(self) -> None:
    super().__init__()
    self._entries = self._asked = self._answers = 0
    self._passages = Texts()

  def _count(self, record: Passage | Query) -> None:
    words = len(record.text.split())
    if isinstance(record, Passage):
      self._entries += 1
      self._passages.add(record.text)
      self.pairs.add(f"{record.paragraph}\0{record.text}", UNKNOWN)
      self.lengths["candidate_words"][words] += 1
    else:
      self._asked += 1
      self._answers += len(record.answers)
      self.questions.add(record.text)
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


class Texts:
  """A set of texts that stores 8 bytes for each."""

  def __init__(self) -> None:
    self._hashes = array("Q")
    self._kept = np.zeros(0, np.uint64)

  def add(self, text: str) -> None:
    """Add a text."""
    self._hashes.append(short_hash(text))
    if len(self._hashes) >= _HELD:
      self._fold()

  def _fold(self) -> np.ndarray:
    self._kept = np.union1d(self._kept, np.frombuffer(self._hashes, np.uint64))
    self._hashes = array("Q")
    return self._kept

  def __len__(self) -> int:
    return len(self._fold())

  def shared(self, other: "Texts") -> int:
    """Count the texts that are in both sets."""
    return len(np.intersect1d(self._fold(), other._fold(), assume_unique=True))


class Pairs:
  """Counts labelled pairs that repeat an earlier one, and those that are labelled both 0 and 1.

  A pair takes 8 bytes: 62 bits of its hash, two of its label. What exceeds memory is in a file.
  """

  def __init__(self) -> None:
    self._codes, self._file, self._total = array("Q"), None, 0

  def add(self, pair: str, label: int) -> None:
    """Add a pair, as one text, with its label."""
    self._codes.append(short_hash(pair) & ~3 | (label - UNKNOWN))
    if len(self._codes) >= _HELD:
      self._spill()

  def _spill(self) -> None:
    if self._file is None:
      self._file = tempfile.TemporaryFile()
    self._total += len(self._codes)
    self._codes.tofile(self._file)
    self._codes = array("Q")

  def asdict(self) -> dict[str, int]:
    """Return `duplicate_pairs` and `contradictory_pairs`; call it once, at the end."""
    total = self._total + len(self._codes)
    distinct = contradictory = 0
    for codes in self._parts():
      codes = np.unique(codes)
      judged = codes[codes & np.uint64(3) != 0] >> np.uint64(2)
      distinct += len(np.unique(codes >> np.uint64(2)))
      contradictory += len(judged) - len(np.unique(judged))
    return {"duplicate_pairs": total - distinct, "contradictory_pairs": contradictory}

  def _parts(self) -> Iterator[np.ndarray]:
    """Yield the codes in parts, of which equal pairs share one."""
    if self._file is None:
      yield np.frombuffer(self._codes, np.uint64)
      return
    self._spill()
    with self._file:
      for part in range(_PARTS):
        self._file.seek(0)
        pieces = []
        while piece := self._file.read(8 * _HELD):
          codes = np.frombuffer(piece, np.uint64)
          pieces.append(codes[codes >> np.uint64(58) == part])
        yield np.concatenate(pieces)


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
    shared[f"{a}+{b}"] = statistics[a].questions.shared(statistics[b].questions)
  return shared
