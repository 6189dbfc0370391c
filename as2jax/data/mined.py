"""Mined negatives: further candidates of training questions, in a folder of `as2jax lab mine`."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data.lines import Lines, quoted
from as2jax.data.record import CONTEXT, Candidate, Question
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object

FILE, CARD = "negatives.jsonl", "mining.json"
PREFIX = "mined-"  # of the ids of mined candidates
_TEXTS = ("question_id", "question", "candidate")


def candidate_id(text: str) -> str:
  """Return the id of a mined candidate, the same in every file."""
  return PREFIX + hashlib.sha256(text.encode()).hexdigest()[:16]


def line(question: Question, candidate: Candidate, **provenance: Any) -> str:
  """Return one line of the file: a question, a negative for it, and what the miner says of it."""
  row = dict(zip(_TEXTS, (question.id, question.text, candidate.text), strict=True))
  row |= {name: value for name in CONTEXT if (value := getattr(candidate, name))}
  return json.dumps({**row, "label": 0, **provenance}, ensure_ascii=False) + "\n"


def file(folder: epath.PathLike) -> epath.Path:
  """Return the file of the negatives in a folder; InputError where mining was not finished."""
  folder = epath.Path(folder).expanduser()
  if not (folder / CARD).exists() or not (folder / FILE).exists():
    raise InputError(
      f"data.mined: {folder} holds no {FILE} with {CARD}; make it with as2jax lab mine RANKER DATA -o "
      f"{folder}, or end a mining that was stopped by the same command"
    )
  return folder / FILE


def card(folder: epath.PathLike) -> dict[str, Any]:
  """Say how the negatives of a folder were mined; InputError as `file`."""
  return read_object(file(folder).parent / CARD, "mine again")


def described(folders: Iterable[str]) -> dict[str, dict[str, Any] | None]:
  """Say how the negatives of each folder were mined; None of a folder that is no longer here."""
  described: dict[str, dict[str, Any] | None] = {}
  for folder in map(str, folders):
    there = (epath.Path(folder).expanduser() / CARD).exists()
    described[folder] = card(folder) if there else None
  return described


def added(
  questions: Sequence[Question], folders: Iterable[str], *, held_out: Sequence[Question] = ()
) -> tuple[Question, ...]:
  """Return the training questions with the negatives of some folders behind their own candidates.

  A text that is a candidate already is not added again. Negatives of `held_out`, which is no longer
  trained on, are left out. Raises InputError: no such folder, a line that is no negative, or one of
  another data set's question.
  """
  texts = {q.id: q.text for q in (*questions, *held_out)}
  further: dict[str, dict[str, Candidate]] = {}
  for folder in folders:
    lines = Lines(file(folder))
    for row in lines.objects():
      name, candidate = _negative(row, texts, lines)
      further.setdefault(name, {}).setdefault(candidate.text, candidate)
  return tuple(_with(question, further.get(question.id, {})) for question in questions)


def carried(questions: Sequence[Question], source: Sequence[Question]) -> tuple[Question, ...]:
  """Return questions with the mined negatives that `added` gave those of the same ids in `source`."""
  further = {question.id: _parted(question)[1] for question in source}
  return tuple(_with(question, further[question.id]) for question in questions)


def distinct(questions: Sequence[Question]) -> tuple[Question, ...]:
  """Return questions without mined candidates that text rules have made equal to one before them."""
  return tuple(_with(*_parted(question)) for question in questions)


def without(questions: Sequence[Question]) -> tuple[Question, ...]:
  """Return questions without the mined negatives that `added` gave them."""
  return tuple(_parted(question)[0] for question in questions)


def _parted(question: Question) -> tuple[Question, dict[str, Candidate]]:
  """Return a question with its own candidates, and the first mined negative of each text."""
  own, further = [], {}
  for candidate in question.candidates:
    if candidate.label == 0 and candidate.id.startswith(PREFIX):
      further.setdefault(candidate.text, candidate)
    else:
      own.append(candidate)
  return dataclasses.replace(question, candidates=tuple(own)), further


def _with(question: Question, further: Mapping[str, Candidate]) -> Question:
  there = {candidate.text for candidate in question.candidates}
  new = tuple(candidate for text, candidate in further.items() if text not in there)
  return dataclasses.replace(question, candidates=(*question.candidates, *new))


def _negative(
  row: Mapping[str, Any], texts: Mapping[str, str], lines: Lines
) -> tuple[str, Candidate]:
  context = {key: row.get(key, "") for key in CONTEXT}
  name, question, text = (row.get(key) for key in _TEXTS)
  if not all(isinstance(value, str) for value in (name, question, text, *context.values())):
    raise lines.error(f"one of {', '.join((*_TEXTS, *CONTEXT))} is no text; mine again")
  if texts.get(name) != question or not text.strip() or row.get("label") != 0:
    raise lines.error(
      f"no negative (label 0) of a training question here: {quoted(name)}, {quoted(question)}; mine "
      "for the data that are trained on"
    )
  return name, Candidate(candidate_id(text), text, 0, **context)
