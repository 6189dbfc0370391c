"""Mined negatives: further candidates of training questions, in a folder of `as2jax lab mine`."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data.lines import Lines, json_objects, quoted
from as2jax.data.record import Candidate, Question
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json

FILE, CARD = "negatives.jsonl", "mining.json"
PREFIX = "mined-"  # of the ids of mined candidates
_TEXTS = ("question_id", "question", "candidate")
_CONTEXT = ("previous", "next", "title")


def candidate_id(text: str) -> str:
  """Return the id of a mined candidate, the same in every file."""
  return PREFIX + hashlib.sha256(text.encode()).hexdigest()[:16]


def line(question: Question, candidate: Candidate, **provenance: Any) -> str:
  """Return one line of the file: a question, a negative for it, and what the miner says of it."""
  row = dict(zip(_TEXTS, (question.id, question.text, candidate.text), strict=True))
  row |= {name: value for name in _CONTEXT if (value := getattr(candidate, name))}
  return json.dumps({**row, "label": 0, **provenance}, ensure_ascii=False) + "\n"


def file(folder: epath.PathLike) -> epath.Path:
  """Return the file of the negatives in a folder.

  Raises:
    InputError: the folder holds none, or mining was not finished.

  """
  folder = epath.Path(folder).expanduser()
  if not (folder / CARD).exists() or not (folder / FILE).exists():
    raise InputError(
      f"data.mined: {folder} holds no {FILE} with {CARD}; make it with as2jax lab mine RANKER DATA -o "
      f"{folder}, or end a mining that was stopped by the same command"
    )
  return folder / FILE


def card(folder: epath.PathLike) -> dict[str, Any]:
  """Say how the negatives of a folder were mined; InputError as `file`."""
  path = file(folder).parent / CARD
  content = read_json(path)
  if not isinstance(content, dict):
    raise InputError(f"{path}: holds no JSON object")
  return content


def described(folders: Iterable[str]) -> dict[str, dict[str, Any] | None]:
  """Say how the negatives of each folder were mined; None of a folder that is no longer here."""
  there = lambda folder: (epath.Path(folder).expanduser() / CARD).exists()
  return {str(folder): card(folder) if there(folder) else None for folder in folders}


def added(
  questions: Sequence[Question], folders: Iterable[str], *, held_out: Sequence[Question] = ()
) -> tuple[Question, ...]:
  """Return the training questions with the negatives of some folders behind their own candidates.

  A text that is a candidate already is not added again.

  Args:
    questions: of the split train.
    folders: that `as2jax lab mine` made.
    held_out: questions that are no longer trained on; their negatives are left out.

  Raises:
    InputError: no such folder, a line that is no negative, or one of another data set's question.

  """
  texts = {q.id: q.text for q in (*questions, *held_out)}
  further: dict[str, dict[str, Candidate]] = {}
  for folder in folders:
    card(folder)
    lines = Lines(file(folder))
    for row in json_objects(lines.filled("negative"), lines):
      name, candidate = _negative(row, texts, lines)
      further.setdefault(name, {}).setdefault(candidate.text, candidate)
  return tuple(_with(question, further.get(question.id, {})) for question in questions)


def carried(questions: Sequence[Question], source: Sequence[Question]) -> tuple[Question, ...]:
  """Questions with the mined negatives that `added` gave the questions of the same ids in `source`."""
  further = {
    q.id: {c.text: c for c in q.candidates if c.label == 0 and c.id.startswith(PREFIX)}
    for q in source
  }
  return tuple(_with(question, further[question.id]) for question in questions)


def distinct(questions: Sequence[Question]) -> tuple[Question, ...]:
  """Questions without mined candidates that text rules have made equal to one before them."""
  left = []
  for question in questions:
    there = {c.text for c in question.candidates if not c.id.startswith(PREFIX)}
    kept = []
    for candidate in question.candidates:
      if not candidate.id.startswith(PREFIX) or candidate.text not in there:
        kept.append(candidate)
      there.add(candidate.text)
    left.append(Question(question.id, question.text, tuple(kept)))
  return tuple(left)


def _with(question: Question, further: Mapping[str, Candidate]) -> Question:
  there = {candidate.text for candidate in question.candidates}
  new = tuple(candidate for text, candidate in further.items() if text not in there)
  return Question(question.id, question.text, (*question.candidates, *new))


def _negative(
  row: Mapping[str, Any], texts: Mapping[str, str], lines: Lines
) -> tuple[str, Candidate]:
  for name in _TEXTS:
    if not isinstance(row.get(name), str) or not row[name].strip():
      raise lines.error(f"the field {name} is missing or no text")
  if row.get("label") != 0:
    raise lines.error(f"label is {row.get('label')!r}; a mined candidate has the label 0")
  name, question, text = (row[name] for name in _TEXTS)
  if texts.get(name) != question:
    raise lines.error(
      f"the question {quoted(name)}, {quoted(question)}, is none of this data set's training "
      "questions; mine negatives for the data that are trained on"
    )
  context = {key: row.get(key, "") for key in _CONTEXT}
  if not all(isinstance(value, str) for value in context.values()):
    raise lines.error(f"one of {', '.join(_CONTEXT)} is no text")
  return name, Candidate(candidate_id(text), text, 0, **context)
