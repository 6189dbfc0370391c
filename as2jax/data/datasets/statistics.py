"""Statistics of a split, computed in one pass with one record in memory at a time."""

import hashlib
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from as2jax.data.datasets.files_on_disk import Counts
from as2jax.data.record import UNKNOWN, Passage, Query, Question

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

  def __init__(self) -> None:
    self._counts = {question_filter: [0, 0, 0] for question_filter in KEEPS}
    self._pairs = Pairs()
    self._judged = self._positive = 0
    self._lengths: dict[str, Counter[int]] = {
      name: Counter() for name in ("candidates", "question_words", "candidate_words")
    }
    self.questions = Texts()

  def take(self, question: Question) -> None:
    """Counts one more question."""
    positives, pairs = len(question.positives), len(question.candidates)
    for question_filter, keeps in KEEPS.items():
      if keeps(question):
        counts = self._counts[question_filter]
        counts[0] += 1
        counts[1] += pairs
        counts[2] += positives
    self._judged += sum(c.label != UNKNOWN for c in question.candidates)
    self._positive += positives
    self._lengths["candidates"][pairs] += 1
    self._lengths["question_words"][len(question.text.split())] += 1
    self._lengths["candidate_words"].update(len(c.text.split()) for c in question.candidates)
    self._pairs.update((f"{question.text}\0{c.text}", c.label) for c in question.candidates)
    self.questions.add(question.text)

  def passing(self, questions: Iterable[Question]) -> Iterator[Question]:
    """Yields the questions and takes each."""
    for question in questions:
      self.take(question)
      yield question

  @property
  def counts(self) -> dict[str, Counts]:
    """question_filter -> counts so far."""
    return {question_filter: Counts(*numbers) for question_filter, numbers in self._counts.items()}

  def asdict(self) -> dict[str, Any]:
    """The statistics, ready for JSON."""
    return {
      "question_filters": {
        question_filter: counts.asdict() for question_filter, counts in self.counts.items()
      },
      "positive_share": self._positive / self._judged if self._judged else None,
      **self._pairs.asdict(),
      **{name: quantiles(lengths) for name, lengths in self._lengths.items()},
    }


class PoolStatistics:
  """As `SplitStatistics`, for a split of retrieval data: first its passages, then its queries."""

  def __init__(self) -> None:
    self._entries, self._queries = 0, [0, 0]  # questions, (question, right passage) pairs
    self._passages = Texts()
    self._pairs = Pairs()
    self._lengths: dict[str, Counter[int]] = {
      name: Counter() for name in ("answers", "question_words", "candidate_words")
    }
    self.questions = Texts()

  def take(self, record: Passage | Query) -> None:
    """Counts one more record."""
    words = len(record.text.split())
    if isinstance(record, Passage):
      self._entries += 1
      self._passages.add(record.text)
      self._pairs.update([(f"{record.paragraph}\0{record.text}", UNKNOWN)])
      self._lengths["candidate_words"][words] += 1
    else:
      self._queries[0] += 1
      self._queries[1] += len(record.answers)
      self.questions.add(record.text)
      self._lengths["question_words"][words] += 1
      self._lengths["answers"][len(record.answers)] += 1

  def passing(self, records: Iterable[Passage | Query]) -> Iterator[Passage | Query]:
    """Yields the records and takes each."""
    for record in records:
      self.take(record)
      yield record

  @property
  def counts(self) -> dict[str, Any]:
    """`pool` -> counts so far."""
    from as2jax.data.datasets.pool import PoolCounts

    numbers = (
      self._entries,
      len(self._passages),
      self._queries[1],
      self._queries[0],
      len(self.questions),
    )
    return {"pool": PoolCounts(*numbers)}

  def asdict(self) -> dict[str, Any]:
    """The statistics, ready for JSON."""
    return {
      "question_filters": {name: counts.asdict() for name, counts in self.counts.items()},
      "positive_share": None,
      **self._pairs.asdict(),
      **{name: quantiles(lengths) for name, lengths in self._lengths.items()},
    }


def quantiles(lengths: Mapping[int, int]) -> dict[str, float]:
  """Quantiles of values given as value -> how often (numpy's linear interpolation)."""
  if not lengths:
    return {}
  values = np.asarray(sorted(lengths))
  ends = np.cumsum([lengths[int(value)] for value in values])
  result = {}
  for quantile in QUANTILES:
    place = quantile * (ends[-1] - 1)
    low, high = (
      values[np.searchsorted(ends, at, side="right")] for at in (np.floor(place), np.ceil(place))
    )
    result[f"{quantile:g}"] = float(low + (high - low) * (place - np.floor(place)))
  return result


def short_hash(text: str) -> int:
  """64 bits of `text`: two of ten million texts meet with a chance of 3 in a million."""
  return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Texts:
  """A set of texts that stores 8 bytes for each."""

  def __init__(self) -> None:
    self._hashes = array("Q")
    self._kept = np.zeros(0, np.uint64)

  def add(self, text: str) -> None:
    """Adds a text."""
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
    """The number of texts that are in both sets."""
    return len(np.intersect1d(self._fold(), other._fold(), assume_unique=True))


class Pairs:
  """Counts labelled pairs that repeat an earlier one, and those that are labelled both 0 and 1.

  A pair takes 8 bytes: 62 bits of its hash, two of its label. What exceeds memory is in a file.
  """

  def __init__(self) -> None:
    self._codes, self._file, self._total = array("Q"), None, 0

  def update(self, pairs: Iterable[tuple[str, int]]) -> None:
    """Adds more pairs, each as one text, with their labels."""
    self._codes.extend(short_hash(text) & ~3 | (label - UNKNOWN) for text, label in pairs)
    if len(self._codes) >= _HELD:
      self._spill()

  def _spill(self) -> None:
    if self._file is None:
      self._file = tempfile.TemporaryFile()
    self._total += len(self._codes)
    self._codes.tofile(self._file)
    self._codes = array("Q")

  def asdict(self) -> dict[str, int]:
    """`duplicate_pairs` and `contradictory_pairs`; call it once, at the end."""
    if self._file is None:
      total = len(self._codes)
      parts = [_distinct_and_contradictory(np.frombuffer(self._codes, np.uint64))]
    else:
      self._spill()
      total = self._total
      with self._file:
        parts = [
          _distinct_and_contradictory(np.concatenate(list(self._part(i)))) for i in range(_PARTS)
        ]
    distinct, contradictory = map(sum, zip(*parts))
    return {"duplicate_pairs": total - distinct, "contradictory_pairs": contradictory}

  def _part(self, part: int) -> Iterator[np.ndarray]:
    self._file.seek(0)
    while piece := self._file.read(8 * _HELD):
      codes = np.frombuffer(piece, np.uint64)
      yield codes[codes >> np.uint64(58) == part]


def _distinct_and_contradictory(codes: np.ndarray) -> tuple[int, int]:
  """Numbers of distinct pairs, and of those among them with both labels."""
  codes = np.unique(codes)
  pairs, judged = codes >> np.uint64(2), codes[codes & np.uint64(3) != 0] >> np.uint64(2)
  return len(np.unique(pairs)), len(judged) - len(np.unique(judged))
