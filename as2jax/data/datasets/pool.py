"""Retrieval data: a pool of sentences and the queries put to it."""

import dataclasses
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data.datasets.files_on_disk import Spec
from as2jax.data.record import Candidate, Passage, Query, Question

TABLES = ("pool", "queries")


@dataclasses.dataclass(frozen=True)
class PoolCounts:
  """What a pool and its queries come to; None where nothing is published.

  Attributes:
    entries: passages; sentences: distinct texts among them.
    queries: (question, right sentence) pairs, ReQA's queries.
    questions: questions as annotated; texts: distinct question texts.

  """

  entries: int | None = None
  sentences: int | None = None
  queries: int | None = None
  questions: int | None = None
  texts: int | None = None

  def __str__(self) -> str:
    return "/".join("–" if n is None else str(n) for n in dataclasses.astuple(self))

  def asdict(self) -> dict[str, int | None]:
    """The numbers by name."""
    return dataclasses.asdict(self)

  def agrees(self, found: "PoolCounts") -> bool:
    """Whether each published number is the one found."""
    pairs = zip(dataclasses.astuple(self), dataclasses.astuple(found))
    return all(number in (None, other) for number, other in pairs)


@dataclasses.dataclass(frozen=True)
class PoolSpec(Spec):
  """A retrieval dataset: `reader(path, table, split)` gives the records of a table of a split."""

  reader: Callable[[epath.PathLike, str, str], Iterable[Passage | Query]]

  @property
  def tables(self) -> tuple[str, ...]:
    """Names of the tables that each split has."""
    return TABLES

  def records(self, table: str, split: str, paths: Iterable[epath.Path]) -> Iterator[Any]:
    """The records of a split's table, file after file."""
    for path in paths:
      yield from self.reader(path, table, split)


@dataclasses.dataclass(frozen=True)
class Pool:
  """One split of a retrieval dataset.

  Attributes:
    passages: the pool, in the order of the source.
    queries: put to it; every answer is the id of a passage.

  """

  passages: tuple[Passage, ...]
  queries: tuple[Query, ...]

  def place(self) -> dict[str, int]:
    """Passage id -> its position in the pool."""
    return {passage.id: i for i, passage in enumerate(self.passages)}


def tally(passages: Iterable[Passage], queries: Iterable[Query]) -> PoolCounts:
  """Counts both tables in one pass each; 8 bytes of every distinct text are held."""
  texts: set[bytes] = set()
  entries = 0
  for passage in passages:
    entries += 1
    texts.add(_short(passage.text))
  asked: set[bytes] = set()
  questions = pairs = 0
  for query in queries:
    questions += 1
    pairs += len(query.answers)
    asked.add(_short(query.text))
  return PoolCounts(entries, len(texts), pairs, questions, len(asked))


def one_per_text(queries: Sequence[Query]) -> tuple[Query, ...]:
  """One query for each distinct question text: the form of Cross-VAE (SPEC.md 5).

  The votes of questions with one text are added up; `answers[0]` is the gold sentence (most
  annotators, ties by first named), all of `answers` are what `any gold` accepts. The id is that of
  the text's first question.
  """
  groups: dict[str, list[Query]] = defaultdict(list)
  for query in queries:
    groups[query.text].append(query)
  merged = []
  for text, group in groups.items():
    votes: Counter[str] = Counter()
    for query in group:
      votes.update(dict(zip(query.answers, query.votes)))
    merged.append(make_query(group[0].id, text, votes))
  return tuple(merged)


def make_query(id: str, text: str, votes: Mapping[str, int]) -> Query:
  """A query from votes by passage id, in the order in which the passages were first named."""
  ranked = sorted(votes, key=lambda answer: -votes[answer])  # stable: ties by first named
  return Query(id, text, tuple(ranked), tuple(votes[answer] for answer in ranked))


def often_asked(queries: Sequence[Query], least: int) -> tuple[Query, ...]:
  """The queries whose gold passage (`answers[0]`) has at least `least` of them (the paper: 8)."""
  asked = Counter(query.answers[0] for query in queries)
  return tuple(query for query in queries if asked[query.answers[0]] >= least)


def aligned(pool: Pool, *, any_gold: bool = False) -> tuple[Question, ...]:
  """Each query as a question with its right passages as positive candidates, and no negatives.

  Args:
    any_gold: every right passage is a candidate; otherwise the gold one alone.

  """
  place = pool.place()
  questions = []
  for query in pool.queries:
    answers = query.answers if any_gold else query.answers[:1]
    passages = [pool.passages[place[answer]] for answer in answers]
    questions.append(
      Question(
        query.id,
        query.text,
        tuple(Candidate(p.id, p.text, 1, p.previous, p.next, title=p.title) for p in passages),
      )
    )
  return tuple(questions)


def _short(text: str) -> bytes:
  return hashlib.blake2b(text.encode(), digest_size=8).digest()
