"""Grouping the rows of a file by question in bounded memory, wherever they are in the file."""

import contextlib
import json
import tempfile
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from as2jax.data.datasets.shards import Progress
from as2jax.data.datasets.statistics import short_hash
from as2jax.data.record import UNKNOWN, Candidate, Question

CONTEXT = ("previous", "next", "title")  # the fields of a row that may be ""
BUCKET_ROWS = 200_000  # of a scattered file held at once, about; BUCKETS files at most
BUCKETS = 128
_HELD = 1 << 20


class Row(NamedTuple):
  """One judged sentence of a file; `label` as the file has it, "" for absent context."""

  line: int
  question: str
  text: str
  label: int
  previous: str = ""
  next: str = ""
  title: str = ""


def grouped(rows: Callable[[], Iterable[Row]], name: str) -> Iterator[list[Row]]:
  """The rows of each question (by its text), in the order in which questions are first seen.

  The rows are read twice. Where each question's rows stand together, they are passed on as they
  come; otherwise they go through temporary files, so that memory holds 16 bytes a question, the
  rows of one bucket of questions, and no more.

  Args:
    rows: returns a new iterator over the rows at each call.
    name: of the file, for the log.

  """
  first = _first_seen(Progress(f"looking through {name}", unit="rows").passing(rows()))
  if not first.scattered:
    yield from together(rows())
    return
  logging.info("%s: rows of a question stand apart; they are brought together on disk", name)
  count = min(max(first.rows // BUCKET_ROWS, 1), BUCKETS)
  with contextlib.ExitStack() as stack:
    files = [
      stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n"))
      for _ in range(count)
    ]
    for row in rows():
      place = first.rank[np.searchsorted(first.hashes, np.uint64(short_hash(row.question)))]
      files[int(place) * count // len(first.rank)].write(json.dumps(row) + "\n")
    for file in files:
      file.seek(0)
      groups: dict[str, list[Row]] = {}
      for line in file:
        row = Row(*json.loads(line))
        groups.setdefault(row.question, []).append(row)
      yield from groups.values()


class _FirstSeen(NamedTuple):
  """Sorted hashes of the questions, their ranks by first occurrence, and whether any recurred."""

  hashes: np.ndarray
  rank: np.ndarray
  scattered: bool
  rows: int


def _first_seen(rows: Iterable[Row]) -> _FirstSeen:
  held, known, first = array("Q"), np.zeros(0, np.uint64), np.zeros(0, np.int64)
  current, blocks, count, scattered = None, 0, 0, False

  def fold() -> None:
    nonlocal held, known, first, scattered, blocks
    together = np.concatenate([known, np.frombuffer(held, np.uint64)])
    numbers = np.concatenate([first, np.arange(blocks, blocks + len(held))])
    known, at = np.unique(together, return_index=True)  # the first of equal ones
    first, scattered = numbers[at], scattered or len(known) < len(together)
    blocks += len(held)
    held = array("Q")

  for row in rows:
    count += 1
    if row.question != current:
      current = row.question
      held.append(short_hash(current))
      if len(held) >= _HELD:
        fold()
  fold()
  rank = np.empty(len(first), np.int64)
  rank[np.argsort(first)] = np.arange(len(first))
  return _FirstSeen(known, rank, scattered, count)


def together(rows: Iterable[Row]) -> Iterator[list[Row]]:
  """The runs of rows with one question."""
  group: list[Row] = []
  for row in rows:
    if group and row.question != group[0].question:
      yield group
      group = []
    group.append(row)
  if group:
    yield group


def make_question(id: str, rows: Sequence[Row], *, positive: int) -> Question:
  """The question of `rows`: label 1 for those with the label `positive`, 0 for others.

  A context sentence has the label of the candidate with the same text, where there is one and its
  rows agree.
  """
  labels: dict[str, set[int]] = defaultdict(set)
  for row in rows:
    labels[row.text].add(int(row.label == positive))
  return Question(
    id,
    rows[0].question,
    tuple(
      Candidate(
        f"{id}-{i}",
        row.text,
        int(row.label == positive),
        row.previous,
        row.next,
        label_of(labels, row.previous),
        label_of(labels, row.next),
        row.title,
      )
      for i, row in enumerate(rows)
    ),
  )


def label_of(labels: Mapping[str, set[int]], text: str) -> int:
  """The label of a context sentence, from those of the candidates by text; else `UNKNOWN`."""
  values = labels.get(text, ())
  return next(iter(values)) if len(values) == 1 else UNKNOWN
