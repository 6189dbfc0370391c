"""Questions and candidates of users: the tables that `tables` reads, grouped by question."""

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data import columns as column_names
from as2jax.data import tables
from as2jax.data.lines import ID, IDS, is_id, quoted, text_problem
from as2jax.data.record import UNKNOWN, Candidate, Question, label_of
from as2jax.data.tables import Table
from as2jax.data.wikiqa_form import HEADER, read_wikiqa

REQUIRED = ("question", "candidate")
CONTEXT = ("previous", "next", "title")
WORDS = {"0": 0, "0.0": 0, "no": 0, "false": 0, "1": 1, "1.0": 1, "yes": 1, "true": 1}  # of a label
ROW, LISTED, WHOLE = "row", "listed", "whole"  # a candidate, one of a question's list, no candidate
SHOWN = 5  # lines of a problem that a message names
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
        shown = ", ".join(map(str, numbers[:SHOWN])) + ", …" * (len(numbers) > SHOWN)
        parts.append(f"{len(numbers)} {what} ({self.place}{'s' * (len(numbers) > 1)} {shown})")
    return f"{self.rows} rows, of these {', '.join(parts)}" if parts else ""


@dataclasses.dataclass
class Group:
  """The rows of one question.

  Attributes:
    id, text: of the question; the id is "" where the table gives none.
    number: of its first row.
    rows: (number, candidate, the other columns of its row by their own names) of each.

  """

  id: str
  text: str
  number: int
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
  title, question_id and candidate_id, each in a column of one of its `columns.NAMES`, or in that which
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
  named = column_names.parse(columns)
  table = tables.open_table(source)
  problems = Problems(len(table.rows), place=table.unit)
  if table.columns == HEADER and table.unit == "line" and not named:
    labelled = labelled is not False
    groups = _of_wikiqa(source, labelled)
    _note_repeated(groups, problems, drop)
  else:
    reading = _Reading(table, named, labelled, problems)
    groups, labelled = reading.groups(), reading.labelled
    _note_repeated(groups, problems, drop)
    if problems.empty and not drop:
      what = f"{problems}; mend the file, or leave them out: --drop"
      reading.faults.append((problems.empty[0], what))
    reading.finish(groups)
  if str(problems):
    told = "%s: %s; rows without text and repeated ones are left out" if drop else "%s: %s"
    log.warning(told, table.source, problems)
  questions, others = [], {}
  for group in groups:
    questions.append(Question(group.id, group.text, tuple(row[1] for row in group.rows)))
    for _, candidate, rest in group.rows:
      others[group.id, candidate.id] = rest
  return OwnFile(tuple(questions), others, problems, labelled)


def _of_wikiqa(source: Any, labelled: bool) -> list[Group]:
  """Read a file in WikiQA's form, whose sentences keep their neighbours, also where they are dropped."""
  groups, line = [], 1
  for question in read_wikiqa(epath.Path(source).expanduser(), labelled=labelled):
    group = Group(question.id, question.text, line + 1)
    for candidate in question.candidates:
      line += 1
      group.rows.append((line, candidate, {"DocumentID": candidate.id.rpartition("-")[0]}))
    groups.append(group)
  return groups


def _note_repeated(groups: Sequence[Group], problems: Problems, drop: bool) -> None:
  """Note rows that repeat a candidate of their question; leave out those with its label, if `drop`."""
  for group in groups:
    kept, labels = [], defaultdict(set)
    for row in group.rows:
      number, candidate, _ = row
      seen = labels[candidate.text]
      if candidate.label in seen:
        problems.repeated.append(number)
      elif seen:
        problems.contradictory.append(number)
      if not (drop and candidate.label in seen):
        kept.append(row)
      seen.add(candidate.label)
    group.rows = kept
  problems.repeated.sort()
  problems.contradictory.sort()


class _Reading:
  """The rows of a table, grouped by question; `faults` are (number, what) of each that is wrong."""

  def __init__(
    self, table: Table, named: Mapping[str, str], labelled: bool | None, problems: Problems
  ):
    self.table, self.problems = table, problems
    self.faults: list[tuple[int, str]] = []
    self.records = list(self._flat(named.get("candidate", "candidate")))
    problems.rows = len(self.records)
    if not self.records:
      table.refuse(self.faults)
      raise table.error("nothing follows the header; add one candidate a line")
    columns = table.columns
    if columns is None:
      columns = tuple(dict.fromkeys(name for _, _, record in self.records for name in record))
    self.fields = column_names.resolve(columns, named, table)
    self.labelled = "label" in self.fields if labelled is None else labelled
    if not self.labelled:
      self.fields.pop("label", None)
    needed = ["question"]
    if any(kind != WHOLE for _, kind, _ in self.records):
      needed += ["candidate", "label"] if self.labelled else ["candidate"]
    for name in needed:
      if name not in self.fields:
        table.refuse(self.faults)
        raise table.error(column_names.missing(name, columns))
    self.ids = set()  # that some row has, so that all need them
    for _, _, record in self.records:
      self.ids.update(name for name in IDS if record.get(self.fields.get(name)) not in (None, ""))

  def _flat(self, name: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield (number, kind, record) of each row; a list of candidates gives one record each."""
    for number, record in self.table.rows:
      entries = record.get("candidates")
      if not isinstance(entries, list):
        yield number, ROW, record
        continue
      shared = {key: value for key, value in record.items() if key != "candidates"}
      if not entries:
        yield number, WHOLE, shared
      for entry in entries:
        entry = {name: entry} if isinstance(entry, str) else entry
        if isinstance(entry, dict):
          yield number, LISTED, {**shared, **entry}
        else:
          what = f"a candidate is {quoted(str(entry))}; expected a text or an object"
          self.faults.append((number, what))

  def groups(self) -> list[Group]:
    """Group the rows by question."""
    groups: dict[Any, Group] = {}
    for number, kind, record in self.records:
      before = len(self.faults)
      texts = self._texts(number, record)
      question, question_id = texts.get("question", ""), texts.get("question_id", "")
      key: Any = (question_id or question) if kind == ROW else number
      if len(self.faults) > before:
        continue
      if not question.strip() or not (kind == WHOLE or texts.get("candidate", "").strip()):
        self.problems.empty.append(number)
        continue
      self._check_ids(number, texts, kind)
      group = groups.setdefault(key, Group(question_id, question, number))
      if group.text != question:
        what = f"question_id {quoted(question_id)} reads {quoted(question)} here and {quoted(group.text)}"
        where = self.table.place(group.number)
        self.faults.append((number, f"{what} on {where}; give each question its own id"))
      if kind != WHOLE:
        given = [texts.get(name, "") for name in ("candidate_id", "candidate", *CONTEXT)]
        candidate_id, text, previous, after, title = given
        label = self._label(number, record)
        candidate = Candidate(candidate_id, text, label, previous, after, title=title)
        read = self.fields.values()
        rest = {name: value for name, value in record.items() if name not in read}
        group.rows.append((number, candidate, rest))
    return list(groups.values())

  def _texts(self, number: int, record: Mapping[str, Any]) -> dict[str, str]:
    """Read the text of each field but the label; what is wrong goes to `faults`."""
    texts = {}
    for field, column in self.fields.items():
      value = record.get(column)
      if field == "label" or value is None:
        continue
      if problem := text_problem(field, value):
        self.faults.append((number, problem))
      texts[field] = str(value)
    return texts

  def _check_ids(self, number: int, texts: Mapping[str, str], kind: str) -> None:
    for name in sorted(self.ids):
      value = texts.get(name, "")
      if not value and not (kind == WHOLE and name == "candidate_id"):
        self.faults.append(
          (number, f"the field {name} is missing; give it on all lines or on none")
        )
      elif value and self.labelled and not is_id(value):  # which run files need
        self.faults.append((number, f"{name} is {quoted(value)}; {ID}"))

  def _label(self, number: int, record: Mapping[str, Any]) -> int:
    if not self.labelled:
      return UNKNOWN
    value = record.get(self.fields["label"])
    label = WORDS.get(str(value).strip().lower(), UNKNOWN)
    if value is None or value == "":
      self.faults.append((number, "the field label is missing; every line needs a label, 0 or 1"))
    elif label == UNKNOWN:
      what = f"label is {quoted(str(value))}; expected 0 or 1, yes or no, true or false"
      self.faults.append((number, what))
    return label

  def finish(self, groups: Sequence[Group]) -> None:
    """Fill in the ids that the table lacks and the labels of context; refuse all faults at once."""
    seen: set[str] = set()
    for place, group in enumerate(groups, 1):
      group.id = group.id or f"q{place}"
      if group.id in seen:
        what = f"question_id {quoted(group.id)} was already that of an earlier line"
        self.faults.append(
          (group.number, f"{what}; give each question its own, in one object or in rows alone")
        )
      seen.add(group.id)
      judged: dict[str, set[int]] = defaultdict(set)
      for _, candidate, _ in group.rows:
        judged[candidate.text].add(candidate.label)
      taken: set[str] = set()
      for i, (number, candidate, rest) in enumerate(group.rows):
        candidate_id = candidate.id or f"{group.id}-{i}"
        if candidate_id in taken:
          what = f"candidate_id {quoted(candidate_id)} occurs twice in question {quoted(group.id)}"
          self.faults.append((number, f"{what}; give each candidate its own id"))
        taken.add(candidate_id)
        candidate = dataclasses.replace(
          candidate,
          id=candidate_id,
          previous_label=label_of(judged, candidate.previous),
          next_label=label_of(judged, candidate.next),
        )
        group.rows[i] = number, candidate, rest
    self.table.refuse(self.faults)
    if not groups:
      raise self.table.error("no row is left; add one candidate a line")


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
