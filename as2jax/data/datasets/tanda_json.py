"""The JSON-lines form in which TANDA (Garg et al. 2020) used TrecQA: one question a line."""

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping

from etils import epath

from as2jax.data.datasets.grouping import label_of
from as2jax.data.lines import (
  Lines,
  check_id,
  json_objects,
  label_field,
  quoted,
  renamed,
  text_field,
)
from as2jax.data.record import UNKNOWN, Candidate, Question

QUESTION = ("question", "candidates", "question_id")
CANDIDATE = ("sentence", "label", "previous", "next", "title", "candidate_id")
ALIASES = {"candidate": "sentence"}


def read_tanda_json(path: epath.PathLike, *, labelled: bool = True) -> tuple[Question, ...]:
  """Reads `{"question": …, "candidates": [{"label": 0 or 1, "sentence": …}, …]}`, one a line.

  A line is one question, also where two have the same text; one without candidates is kept. A
  question may have `question_id`, a candidate `candidate_id`, `previous`, `next` and `title`.
  Without ids, questions are q1, q2 … and their candidates q1-0, q1-1 …. A context sentence has the
  label of the candidate with the same text, as in `grouping.make_question`. Empty lines at the end
  of the file are not read.

  Args:
    path: the file.
    labelled: False ignores labels: every label is `UNKNOWN`.

  Raises:
    InputError: anything else; names file, line and value.

  """
  return tuple(iterate_tanda_json(path, labelled=labelled))


def iterate_tanda_json(path: epath.PathLike, *, labelled: bool = True) -> Iterator[Question]:
  """As `read_tanda_json`, one question at a time."""
  lines = Lines(path)
  first_line: dict[str, int] = {}  # of each question
  own_ids = None
  for number, record in enumerate(json_objects(lines.filled("question"), lines), 1):
    record = renamed(record, QUESTION, {}, lines)
    own_id = text_field("question_id", record, lines)
    if own_ids not in (None, bool(own_id)):
      raise lines.error("question_id is on some lines only; give it on all or on none")
    own_ids = bool(own_id)
    question = _question(record, own_id or f"q{number}", lines, labelled)
    if question.id in first_line:
      raise lines.error(
        f"question_id {quoted(question.id)} was already on line "
        f"{first_line[question.id]}; give each question its own"
      )
    first_line[question.id] = lines.number
    yield question


def _question(record: Mapping, question_id: str, lines: Lines, labelled: bool) -> Question:
  text = _filled("question", record, lines, "line")
  check_id(question_id, "question_id", lines)
  entries = record.get("candidates")
  if not isinstance(entries, list):
    raise lines.error(
      f"candidates is {quoted(json.dumps(entries))}; expected a list of objects with "
      "label and sentence"
    )
  candidates: dict[str, Candidate] = {}
  labels: dict[str, set[int]] = defaultdict(set)  # by text
  for i, entry in enumerate(entries):
    if not isinstance(entry, dict):
      raise lines.error(
        f"candidate {i + 1} is {quoted(json.dumps(entry))}; expected an object "
        "with label and sentence"
      )
    entry = renamed(entry, CANDIDATE, ALIASES, lines)
    sentence = _filled("sentence", entry, lines, "candidate")
    candidate_id = text_field("candidate_id", entry, lines) or f"{question_id}-{i}"
    check_id(candidate_id, "candidate_id", lines)
    if candidate_id in candidates:
      raise lines.error(
        f"candidate_id {quoted(candidate_id)} occurs twice; give each candidate its own"
      )
    context = {name: text_field(name, entry, lines) for name in ("previous", "next", "title")}
    label = label_field(entry, lines, "candidate") if labelled else UNKNOWN
    candidates[candidate_id] = Candidate(candidate_id, sentence, label, **context)
    labels[sentence].add(label)
  return Question(
    question_id,
    text,
    tuple(
      dataclasses.replace(
        c, previous_label=label_of(labels, c.previous), next_label=label_of(labels, c.next)
      )
      for c in candidates.values()
    ),
  )


def _filled(name: str, record: Mapping, lines: Lines, what: str) -> str:
  text = text_field(name, record, lines)
  if not text.strip():
    state = "is empty" if name in record else "is missing"
    raise lines.error(f"the field {name} {state}; every {what} needs a {name}")
  return text
