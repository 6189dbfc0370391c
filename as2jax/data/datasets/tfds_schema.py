"""How each kind of record is stored as a TFDS example. Imports tensorflow_datasets (0.3 s)."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from as2jax.data.record import Candidate, Passage, Query, Question

CANDIDATE_TEXTS = ("id", "text", "previous", "next", "title")
CANDIDATE_LABELS = ("label", "previous_label", "next_label")
PASSAGE_TEXTS = ("id", "text", "title", "previous", "next", "paragraph")

_TEXT = tfds.features.Text()


@dataclasses.dataclass(frozen=True)
class Table:
  """How one kind of record is stored.

  Attributes:
    features: of TFDS.
    encoded: record -> example as `features.encode_example` would leave it; made here at once,
      since TFDS looks at every value of every candidate and takes most of the time.
    decoded: example -> record.
    unit: what progress counts.

  """

  features: Mapping[str, Any]
  encoded: Callable[[Any], dict]
  decoded: Callable[[Mapping], Any]
  unit: str


def _encoded_question(question: Question) -> dict:
  columns = {
    name: _texts([getattr(c, name) for c in question.candidates]) for name in CANDIDATE_TEXTS
  }
  columns |= {
    name: np.array([getattr(c, name) for c in question.candidates], np.int32)
    for name in CANDIDATE_LABELS
  }
  return {"id": question.id.encode(), "text": question.text.encode(), "candidates": columns}


def _texts(values: Iterable[str]) -> np.ndarray:
  return np.array([value.encode() for value in values], object)


def _decoded_question(example: Mapping) -> Question:
  columns = example["candidates"]
  texts = [[value.decode() for value in columns[name]] for name in CANDIDATE_TEXTS]
  labels = [map(int, columns[name]) for name in CANDIDATE_LABELS]
  rows = zip(*texts, *labels, strict=True)
  candidates = tuple(
    Candidate(id, text, label, previous, next, previous_label, next_label, title)
    for id, text, previous, next, title, label, previous_label, next_label in rows
  )
  return Question(example["id"].decode(), example["text"].decode(), candidates)


def _encoded_passage(passage: Passage) -> dict:
  return {name: getattr(passage, name).encode() for name in PASSAGE_TEXTS}


def _decoded_passage(example: Mapping) -> Passage:
  return Passage(*(example[name].decode() for name in PASSAGE_TEXTS))


def _encoded_query(query: Query) -> dict:
  return {
    "id": query.id.encode(),
    "text": query.text.encode(),
    "answers": _texts(query.answers),
    "votes": np.array(query.votes, np.int32),
  }


def _decoded_query(example: Mapping) -> Query:
  return Query(
    example["id"].decode(),
    example["text"].decode(),
    tuple(answer.decode() for answer in example["answers"]),
    tuple(map(int, example["votes"])),
  )


TABLES = {
  "questions": Table(
    {
      "id": _TEXT,
      "text": _TEXT,
      "candidates": tfds.features.Sequence(
        dict.fromkeys(CANDIDATE_TEXTS, _TEXT) | dict.fromkeys(CANDIDATE_LABELS, np.int32)
      ),
    },
    _encoded_question,
    _decoded_question,
    "candidates",
  ),
  "pool": Table(
    dict.fromkeys(PASSAGE_TEXTS, _TEXT), _encoded_passage, _decoded_passage, "sentences"
  ),
  "queries": Table(
    {
      "id": _TEXT,
      "text": _TEXT,
      "answers": tfds.features.Sequence(_TEXT),
      "votes": tfds.features.Sequence(np.int32),
    },
    _encoded_query,
    _decoded_query,
    "queries",
  ),
}
