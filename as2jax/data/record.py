"""The one data record of answer sentence selection: a question with its candidates."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable

UNKNOWN = -1  # the label of a sentence that nobody judged


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
  """A question and the candidates to rank for it, in the order of the source."""

  id: str
  text: str
  candidates: tuple[Candidate, ...]

  @property
  def positives(self) -> tuple[int, ...]:
    """Positions of the candidates with label 1."""
    return tuple(i for i, c in enumerate(self.candidates) if c.label == 1)

  @property
  def negatives(self) -> tuple[int, ...]:
    """Positions of the candidates with label 0."""
    return tuple(i for i, c in enumerate(self.candidates) if c.label == 0)


def fingerprint(questions: Iterable[Question]) -> str:
  """SHA-256 (hex) of the content of `questions`, every field, in order."""
  digest = hashlib.sha256()
  for question in questions:
    row = [question.id, question.text]
    row += [dataclasses.astuple(candidate) for candidate in question.candidates]
    digest.update(json.dumps(row, ensure_ascii=True).encode() + b"\n")
  return digest.hexdigest()
