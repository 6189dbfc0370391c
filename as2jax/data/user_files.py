"""Questions and candidates of users: the tables that `tables` reads, grouped by question."""

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data import tables
from as2jax.data.lines import ID, IDS, is_id, quoted, text_problem
from as2jax.data.record import UNKNOWN, Candidate, Question, label_of
from as2jax.data.tables import Table
from as2jax.data.wikiqa_form import HEADER, read_wikiqa

REQUIRED = ("question", "candidate")
CONTEXT = ("previous", "next", "title")
WORDS = {"0": 0, "0.0": 0, "no": 0, "false": 0, "1": 1, "1.0": 1, "yes": 1, "true": 1}  # of a label
ROW, LISTED, WHOLE = "row", "listed", "whole"  # a candidate, one of a question's list, no candidate
log = logging.getLogger(__name__)


@dataclasses.dataclass
class Problems:
  """What is odd in a table.

  Attributes:
    rows: how many there are.
    empty: numbers of the rows without a question or without a candidate.
    repeated: of those that repeat a candidate of their question with the same label.
    contradictory: of those that repeat a candidate with another label.
    place: "line" or "row".

  """

  rows: int = 0
  empty: list[int] = dataclasses.field(default_factory=list)
  repeated: list[int] = dataclasses.field(default_factory=list)
  contradictory: list[int] = dataclasses.field(default_factory=list)
  place: str = "line"

  def __str__(self) -> str:
    parts = []
    for numbers, what in (
      (self.empty, "without a question or a candidate"),
      (self.repeated, "repeating a candidate of their question"),
      (self.contradictory, "repeating one with another label"),
    ):
      if numbers:
        shown = ", ".join(map(str, numbers[: tables.SHOWN])) + ", …" * (len(numbers) > tables.SHOWN)
        parts.append(f"{len(numbers)} {what} ({self.place}{'s' * (len(numbers) > 1)} {shown})")
    return f"{self.rows} rows, of these {', '.join(parts)}" if parts else ""


@dataclasses.dataclass
class Group:
  """The rows of one question.

  Attributes:
    id, text, group: of the question; the id is "" where the table gives none.
    number: of its first row.
    rows: (number, candidate, the other columns of its row by their own names) of each.

  """

  id: str
  text: str
  number: int
  group: str = ""
  rows: list[tuple[int, Candidate, Mapping[str, Any]]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class OwnFile:
  """What a table holds.

  Attributes:
    questions: in the order of first sight.
    others: (question id, candidate id) -> the other columns of its row, by their own names.
    problems: what is odd in it.
    labelled: whether it has labels, and they were read.

  """

  questions: tuple[Question, ...]
  others: Mapping[tuple[str, str], Mapping[str, Any]]
  problems: Problems
  labelled: bool


def read_labelled(
  source: Any, *, columns: Mapping[str, str] | str = "", drop: bool = False
) -> tuple[Question, ...]:
  """Read the questions of a table, each candidate with its label; see `read`."""
  return read(source, labelled=True, columns=columns, drop=drop).questions


def read(
  source: Any, *, labelled: bool | None, columns: Mapping[str, str] | str = "", drop: bool = False
) -> OwnFile:
  """Read questions with candidates from a user's table.

  A row is a candidate, with the fields question, candidate, label and optionally previous, next,
  title, question_id, candidate_id and group (of dependent questions), each in a column of one of its `tables.NAMES`, or in that which
  `columns` names; every other column is carried along. A row may also be a question with its
  `candidates`, a list of texts or objects. WikiQA's own format is read as such. Rows with one
  question_id, or without ids one question text, are one question, wherever they stand; questions come
  in the order of first sight. Without ids, questions are q1, q2 … and their candidates q1-0, q1-1 ….
  A row with candidates is a whole question: its id may not occur again.

  Args:
    source: a path, or a pandas frame.
    labelled: whether labels are read: needed (True), ignored (False), or read where there is a
      column (None).
    columns: {field: column}, or as text: `question=query,label=is_correct`.
    drop: whether rows without text, and those that repeat a candidate with its label, are left out;
      else the first are an error, and the second kept and logged.

  Raises InputError: anything else; names file, lines and values.

  """
  named = tables.named_columns(columns)
  table = tables.open_table(source)
  problems, faults = Problems(len(table.rows), place=table.unit), []
  if table.columns == HEADER and table.unit == "line" and not named:
    labelled = labelled is not False
    groups = _of_wikiqa(source, labelled)
  else:
    records = _records(table, named.get("candidate", "candidate"))
    fields = _fields(table, records, named, labelled)
    labelled = "label" in fields
    groups = _grouped(table, records, fields, problems, faults)
    problems.rows = len(records)
  questions, others = _questions(groups, problems, faults, drop)
  if problems.empty and not drop:
    what = f"{problems}; mend the file, or leave them out: --drop"
    faults.append((problems.empty[0], what))
  table.refuse(faults)
  if not questions:
    raise table.error("no row holds a question and a candidate; add one candidate a line")
  if str(problems):
    told = "%s: %s; rows without text and repeated ones are left out" if drop else "%s: %s"
    log.warning(told, table.source, problems)
  return OwnFile(questions, others, problems, labelled)


def _of_wikiqa(source: Any, labelled: bool) -> list[Group]:
  """Read a file in WikiQA's form, whose sentences keep their neighbours, also where they are dropped."""
  groups, line = [], 1
  for question in read_wikiqa(epath.Path(source).expanduser(), labelled=labelled):
    group = Group(question.id, question.text, line + 1, question.group)
    for candidate in question.candidates:
      line += 1
      group.rows.append((line, candidate, {"DocumentID": candidate.id.rpartition("-")[0]}))
    groups.append(group)
  return groups


def _records(table: Table, name: str) -> list[tuple[int, str, dict[str, Any]]]:
  """Return (number, kind, record) of each row; a list of candidates gives one record each."""
  records: list[tuple[int, str, dict[str, Any]]] = []
  faults = []
  for number, record in table.rows:
    entries = _listed(table, number, record, name)
    if not isinstance(entries, list):
      records.append((number, ROW, record))
      continue
    shared = {key: value for key, value in record.items() if key != "candidates"}
    if not entries:
      records.append((number, WHOLE, shared))
    for entry in entries:
      if isinstance(entry, dict):
        records.append((number, LISTED, {**shared, **entry}))
      elif isinstance(entry, str):
        records.append((number, LISTED, {**shared, name: entry}))
      else:
        faults.append(
          (number, f"a candidate is {quoted(str(entry))}; expected a text or an object")
        )
  table.refuse(faults)
  return records


def _listed(table: Table, number: int, record: Mapping[str, Any], name: str) -> Any:
  """Return a row's `candidates`, each an object with its label where `labels` are a list beside them."""
  entries, labels = record.get("candidates"), record.get("labels")
  if isinstance(entries, dict):
    what = f"candidates is {quoted(str(entries))}; expected a list of texts or of objects"
    raise table.error(what, number)
  if not isinstance(entries, list) or not isinstance(labels, list):
    return entries
  if len(labels) != len(entries):
    told = f"{len(labels)} labels for {len(entries)} candidates; give each candidate its label"
    raise table.error(told, number)
  found = []
  for entry, label in zip(entries, labels, strict=True):
    found.append((entry if isinstance(entry, dict) else {name: entry}) | {"label": label})
  return found


def _fields(
  table: Table,
  records: Sequence[tuple[int, str, dict[str, Any]]],
  named: Mapping[str, str],
  labelled: bool | None,
) -> dict[str, str]:
  """Return the column of each field that is read; `label` only where labels are."""
  columns = table.columns
  if columns is None:
    columns = tuple(dict.fromkeys(name for _, _, record in records for name in record))
  needed = ["question"]
  if any(kind != WHOLE for _, kind, _ in records):
    needed += ["candidate", "label"] if labelled else ["candidate"]
  fields = tables.resolve_columns(columns, named, table, needed=needed)
  if labelled is False:
    fields.pop("label", None)
  return fields


def _grouped(
  table: Table,
  records: Sequence[tuple[int, str, dict[str, Any]]],
  fields: Mapping[str, str],
  problems: Problems,
  faults: list[tuple[int, str]],
) -> list[Group]:
  """Group rows by question; add what is wrong to `faults`, rows without text to `problems`."""
  groups: dict[Any, Group] = {}
  needed = set()  # ids that some row has, so that all need them
  for _, _, record in records:
    needed.update(name for name in IDS if record.get(fields.get(name)) not in (None, ""))
  for number, kind, record in records:
    before = len(faults)
    texts = dict.fromkeys((*REQUIRED, *CONTEXT, *IDS, "group"), "")
    for name, column in fields.items():
      value = record.get(column)
      if name == "label" or value is None:
        continue
      if name in IDS and isinstance(value, float) and value.is_integer():
        value = int(value)  # of a frame, whose column lacks some
      if problem := text_problem(name, value):
        faults.append((number, problem))
      texts[name] = str(value)
    if len(faults) > before:
      continue
    question, question_id = texts["question"], texts["question_id"]
    if not question.strip() or not (kind == WHOLE or texts["candidate"].strip()):
      problems.empty.append(number)
      continue
    for name in sorted(needed):
      value = texts[name]
      if kind == WHOLE and name == "candidate_id":
        continue
      if not value or ("label" in fields and not is_id(value)):  # run files need ids that are
        faults.append((number, f"{name} is {quoted(value)}; give one on all lines or none; {ID}"))
    key = (question_id or question) if kind == ROW else number
    group = groups.setdefault(key, Group(question_id, question, number, texts["group"]))
    if group.group != texts["group"]:
      what = f"group is {quoted(texts['group'])} here and {quoted(group.group)} on "
      faults.append((number, f"{what}{table.place(group.number)}; give each question one group"))
    if group.text != question:
      what = (
        f"question_id {quoted(question_id)} reads {quoted(question)} here and {quoted(group.text)}"
      )
      where = table.place(group.number)
      faults.append((number, f"{what} on {where}; give each question its own id"))
    if kind == WHOLE:
      continue
    label = UNKNOWN
    if "label" in fields:
      word = str(record.get(fields["label"]))
      label = WORDS.get(word.strip().lower(), UNKNOWN)
      if label == UNKNOWN:
        what = f"label is {quoted(word)}; every line needs one: 0 or 1, yes or no, true or false"
        faults.append((number, what))
    around = {name: texts[name] for name in CONTEXT}
    candidate = Candidate(texts["candidate_id"], texts["candidate"], label, **around)
    taken = {column for name, column in fields.items() if name != "group"}
    rest = {name: value for name, value in record.items() if name not in taken}
    group.rows.append((number, candidate, rest))
  return list(groups.values())


def _questions(
  groups: Sequence[Group], problems: Problems, faults: list[tuple[int, str]], drop: bool
) -> tuple[tuple[Question, ...], dict[tuple[str, str], Mapping[str, Any]]]:
  """Return `OwnFile.questions` and `others`, with the ids and the labels of context that are missing.

  Rows that repeat a candidate are noted in `problems`; those with its label too are left out if `drop`.
  """
  questions: dict[str, Question] = {}
  others: dict[tuple[str, str], Mapping[str, Any]] = {}
  for place, group in enumerate(groups, 1):
    name = group.id or f"q{place}"
    if name in questions:
      what = f"question_id {quoted(name)} was already that of an earlier line"
      how = "give each question its own, in one object or in rows alone"
      faults.append((group.number, f"{what}; {how}"))
      continue
    candidates: list[Candidate] = []
    labels: dict[str, set[int]] = defaultdict(set)
    for number, candidate, rest in group.rows:
      seen = labels[candidate.text]
      if candidate.label in seen:
        problems.repeated.append(number)
        if drop:
          continue
      elif seen:
        problems.contradictory.append(number)
      seen.add(candidate.label)
      key = name, candidate.id or f"{name}-{len(candidates)}"
      if key in others:
        what = f"candidate_id {quoted(key[1])} occurs twice in question {quoted(name)}"
        faults.append((number, f"{what}; give each candidate its own id"))
      others[key] = rest
      candidates.append(dataclasses.replace(candidate, id=key[1]))
    for i, one in enumerate(candidates):
      if (one.previous or one.next) and one.previous_label == one.next_label == UNKNOWN:
        before, after = label_of(labels, one.previous), label_of(labels, one.next)
        candidates[i] = dataclasses.replace(one, previous_label=before, next_label=after)
    questions[name] = Question(name, group.text, tuple(candidates), group.group)
  problems.repeated.sort()
  problems.contradictory.sort()
  return tuple(questions.values()), others


def rows(own: OwnFile, besides: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
  """Yield the rows of `own` with the fields' own names, so that `read` finds the same questions.

  A column of the table that has the name of one of ours, or of those `besides` that will be added, is
  called input_NAME.
  """
  candidates = [c for q in own.questions for c in q.candidates]
  context = [name for name in CONTEXT if any(getattr(c, name) for c in candidates)]
  label = ["label"] if own.labelled else []
  ours = {"question_id", "question", "candidate_id", "candidate", *label, *context, *besides}
  for question in own.questions:
    for candidate in question.candidates:
      row: dict[str, Any] = {
        "question_id": question.id,
        "question": question.text,
        "candidate_id": candidate.id,
        "candidate": candidate.text,
      }
      row |= {name: getattr(candidate, name) for name in (*label, *context)}
      for name, value in own.others.get((question.id, candidate.id), {}).items():
        row[f"input_{name}" if name in ours else name] = value
      yield row
