"""The data records: a question with its candidates; for retrieval, a passage and a query."""

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence

UNKNOWN = -1  # the label of a sentence that nobody judged
CONTEXT = ("previous", "next", "title")  # the texts of a candidate that may be ""
# Names of two classes by which one means "answers the question", without case and punctuation.
POSITIVE = frozenset("answer correct entailment match positive relevant right true yes".split())
NEGATIVE = frozenset(
  "contradiction false incorrect irrelevant mismatch negative neutral no nonrelevant wrong "
  "noanswer nomatch nonanswer nonentailment notanswer notcorrect notentailment notmatch notrelevant "
  "unrelated".split()
)


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
  """One sentence that may answer its question.

  Attributes:
    id: unique within its question (and, in run files, the document name).
    text: the sentence; never empty.
    label: 1 (answers the question), 0 (does not) or `UNKNOWN`.
    previous, next: the neighbouring sentences of its document, "" at an edge or where unknown.
    previous_label, next_label: their labels for the same question, `UNKNOWN` where not judged.
    title: the title of its document, "" where unknown.

  """

  id: str
  text: str
  label: int = UNKNOWN
  previous: str = ""
  next: str = ""
  previous_label: int = UNKNOWN
  next_label: int = UNKNOWN
  title: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
  """A question and the candidates to rank for it, in the order of the source.

  Attributes:
    group: questions of one group (an article's, a series') are not independent; "" of none.

  """

  id: str
  text: str
  candidates: tuple[Candidate, ...]
  group: str = ""

  @property
  def positives(self) -> tuple[int, ...]:
    """Return positions of the candidates with label 1."""
    return tuple(i for i, c in enumerate(self.candidates) if c.label == 1)

  @property
  def negatives(self) -> tuple[int, ...]:
    """Return positions of the candidates with label 0."""
    return tuple(i for i, c in enumerate(self.candidates) if c.label == 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Passage:
  """One sentence of a retrieval pool, in its paragraph; the fields are as a candidate's."""

  id: str
  text: str
  title: str = ""
  previous: str = ""
  next: str = ""
  paragraph: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
  """A question to a pool, and the ids of its right passages: most annotators (`votes`) first."""

  id: str
  text: str
  answers: tuple[str, ...]
  votes: tuple[int, ...]
  group: str = ""  # as a question's


@dataclasses.dataclass(frozen=True)
class Pool:
  """One split of a retrieval dataset: passages, and queries whose answers are ids of these."""

  passages: tuple[Passage, ...]
  queries: tuple[Query, ...]

  def place(self) -> dict[str, int]:
    """Passage id -> its position in the pool."""
    return {passage.id: i for i, passage in enumerate(self.passages)}


def make_query(id: str, text: str, votes: Mapping[str, int], group: str = "") -> Query:
  """Return a query from votes by passage id, in the order in which the passages were first named."""
  ranked = sorted(votes, key=lambda answer: -votes[answer])  # stable: ties by first named
  return Query(id, text, tuple(ranked), tuple(votes[answer] for answer in ranked), group)


def groups_of(asked: Sequence[Question | Query]) -> list[int] | None:
  """Return the number of each question's group, in order of first sight; None where each is alone."""
  numbers: dict[tuple[str, str], int] = {}
  groups = []
  for one in asked:
    name = (one.group, "" if one.group else one.id)  # without a group it is one of its own
    groups.append(numbers.setdefault(name, len(numbers)))
  return groups if len(numbers) < len(groups) else None


def in_order(questions: Iterable[Question]) -> bool:
  """Tell whether candidates stand as in their document: somewhere one's neighbour stands beside it."""
  for question in questions:
    for one, after in itertools.pairwise(question.candidates):
      if after.text == one.next or one.text == after.previous:
        return True
  return False


def right_class(names: Sequence[str]) -> int | None:
  """Return the number of the class that means "answers the question"; None where two names do not tell."""
  plain = [re.sub("[^a-z]", "", name.lower()) for name in names]
  for right, name in enumerate(plain):
    if len(plain) == 2 and name in POSITIVE and plain[1 - right] in NEGATIVE:
      return right
  return None


def label_of(labels: Mapping[str, set[int]], text: str) -> int:
  """Return the label of a context sentence, from those of the candidates by text; else `UNKNOWN`."""
  values = labels.get(text, ())
  return next(iter(values)) if len(values) == 1 else UNKNOWN


def fingerprint(records: Iterable[Question | Passage | Query]) -> str:
  """Return the SHA-256 (hex) of the content of `records`, every field but the groups, in order."""
  digest = hashlib.sha256()
  for record in records:
    digest.update(line(record))
  return digest.hexdigest()


def line(record: Question | Passage | Query) -> bytes:
  """Return what `fingerprint` hashes of one record."""
  if isinstance(record, Question):
    row = [record.id, record.text, *map(_fields, record.candidates)]
  else:
    row = _fields(record)
  return json.dumps(row, ensure_ascii=True).encode() + b"\n"


def _fields(record: Candidate | Passage | Query) -> list:
  # As dataclasses.astuple, which copies deeply and takes most of the time of a large file.
  return [getattr(record, name) for name in record.__slots__ if name != "group"]
