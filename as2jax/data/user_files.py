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
from as2jax.runtime.errors import InputError

REQUIRED = ("question", "candidate")
CONTEXT = ("previous", "next", "title")
WORDS = {"0": 0, "0.0": 0, "no": 0, "false": 0, "1": 1, "1.0": 1, "yes": 1, "true": 1}  # of a label
SHOWN = 5  # lines of a problem that a message names
log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
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
  empty: tuple[int, ...] = ()
  repeated: tuple[int, ...] = ()
  contradictory: tuple[int, ...] = ()
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


@dataclasses.dataclass(frozen=True)
class OwnFile:
  """What a table holds.

  Attributes:
    questions: in the order of first sight.
    others: (question id, candidate id) -> the other columns of its row, by their own names.
    problems: what is odd in it.
    labelled: whether it has labels, and they were read.
    numbers: of the rows of each question's candidates: lines, or positions in a frame.

  """

  questions: tuple[Question, ...]
  others: Mapping[tuple[str, str], Mapping[str, Any]]
  problems: Problems
  labelled: bool
  numbers: tuple[tuple[int, ...], ...] = ()


def read_labelled(
  source: Any, *, columns: Mapping[str, str] | str = "", drop: bool = False
) -> tuple[Question, ...]:
  """Read the questions of a table, each candidate with its label; see `read`."""
  return read(source, labelled=True, columns=columns, drop=drop).questions


def read_unlabelled(
  source: Any, *, columns: Mapping[str, str] | str = "", drop: bool = False
) -> tuple[Question, ...]:
  """Read the questions of a table for ranking: labels are ignored where there are any."""
  return read(source, labelled=False, columns=columns, drop=drop).questions


def read(
  source: Any,
  *,
  labelled: bool | None,
  columns: Mapping[str, str] | str = "",
  drop: bool = False,
  lenient: bool = False,
) -> OwnFile:
  """Read questions with candidates from a user's table.

  A row is a candidate, with the fields question, candidate, label and optionally previous, next,
  title, question_id and candidate_id, each in a column of one of its `columns.NAMES`, or in that which
  `columns` names; every other column is carried along. An object of JSON-lines may also be a
  question with its `candidates`, texts or objects. WikiQA's own format is read as such. Rows with one
  question_id, or without ids one question text, are one question, wherever they stand; questions come
  in the order of first sight. Without ids, questions are q1, q2 … and their candidates q1-0, q1-1 ….
  An object with candidates is a whole question: its id may not occur again.

  Args:
    source: a path, or a pandas frame.
    labelled: whether labels are read: needed (True), ignored (False: two tab-separated columns
      without a header will do), or read where there is a column (None).
    columns: {field: column}, or as text: `question=query,label=is_correct`. A row of JSON-lines may
      lack one that is optional.
    drop: whether rows without text, and those that repeat a candidate with its label, are left out;
      else the first are an error, and the second kept and logged.
    lenient: whether rows without text are left out and told in `problems` alone.

  Raises:
    InputError: anything else; names file, lines and values.

  """
  named = column_names.parse(columns) if isinstance(columns, str) else dict(columns)
  column_names.check(named, "columns")
  table = tables.open_table(source, named, bare=() if labelled is not False else REQUIRED)
  if table.columns == HEADER and table.unit == "line" and not named:
    own = _of_wikiqa(source, labelled is not False, drop)
  else:
    own = _Reading(table, named, labelled).own_file(drop, lenient)
  if str(own.problems) and not lenient:
    text = "%s: %s; rows without text and repeated ones are left out" if drop else "%s: %s"
    log.warning(text, table.source, own.problems)
  return own


def _of_wikiqa(source: Any, labelled: bool, drop: bool) -> OwnFile:
  """Read a file in WikiQA's form, whose sentences keep their neighbours, also where they are dropped."""
  line, questions, others, numbers = 1, [], {}, []
  repeated, contradictory = [], []
  for question in read_wikiqa(epath.Path(source).expanduser(), labelled=labelled):
    labels: dict[str, set[int]] = defaultdict(set)
    candidates, lines = [], []
    for candidate in question.candidates:
      line += 1
      seen = labels[candidate.text]
      if candidate.label in seen:
        repeated.append(line)
      elif seen:
        contradictory.append(line)
      if not (drop and candidate.label in seen):
        candidates.append(candidate)
        lines.append(line)
        document = candidate.id.rpartition("-")[0]
        others[question.id, candidate.id] = {"DocumentID": document}
      seen.add(candidate.label)
    questions.append(dataclasses.replace(question, candidates=tuple(candidates)))
    numbers.append(tuple(lines))
  problems = Problems(line - 1, (), tuple(repeated), tuple(contradictory))
  return OwnFile(tuple(questions), others, problems, labelled, tuple(numbers))


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
  """One candidate of the table; `others` are the columns that are no field of ours."""

  number: int
  label: int
  texts: Mapping[str, str]  # field -> text; without those that are absent
  others: Mapping[str, Any]


class _Reading:
  """The rows of a table as they are grouped by question; faults are gathered and refused together."""

  def __init__(self, table: Table, named: Mapping[str, str], labelled: bool | None):
    self.table, self.named, self.labelled = table, named, labelled
    self.optional = labelled is None  # labels are read where there are any
    self.needed = (*REQUIRED, "label") if labelled else REQUIRED
    self.faults: list[tuple[int, str]] = []
    self.resolved: dict[tuple[str, ...], dict[str, str]] = {}  # columns -> {field: column}
    self.unseen: set[str] = set()  # fields that were named and that no record had
    self.given: set[str] | None = None  # which ids, and whether a label, the first row has
    if table.columns is None:
      self.unseen.update(named)
      return
    fields = self.fields(table.columns, 1)
    for name in self.needed:
      if name not in fields:
        raise table.error(column_names.missing(name, table.columns))

  def own_file(self, drop: bool, lenient: bool) -> OwnFile:
    """Group the rows by question, and make the questions."""
    groups: dict[Any, list[_Row]] = {}
    texts: dict[Any, str] = {}
    labels: dict[Any, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    empty, repeated, contradictory = [], [], []
    count = 0
    for number, key, record in self.records(groups, texts):
      count += 1
      row = self.row(number, record)
      if row is None:
        empty.append(number)
        continue
      text = row.texts["question"]
      key = key or row.texts.get("question_id") or text
      group = groups.setdefault(key, [])
      if texts.setdefault(key, text) != text:
        what = f"question_id {quoted(key)} reads {quoted(text)} here and {quoted(texts[key])}"
        where = self.table.place(group[0].number) if group else "an earlier line"
        self.faults.append((number, f"{what} on {where}; give each question its own id"))
      seen = labels[key][row.texts["candidate"]]
      if row.label in seen:
        repeated.append(number)
      elif seen:
        contradictory.append(number)
      if not (drop and row.label in seen):
        group.append(row)
      seen.add(row.label)
    problems = Problems(count, tuple(empty), tuple(repeated), tuple(contradictory), self.table.unit)
    if empty and not drop and not lenient:
      what = f"{problems}; mend the file, or leave them out: --drop"
      self.faults.insert(0, (empty[0], what))
    self.check(groups, count, len(empty))
    questions, others, numbers = [], {}, []
    for place, (key, group) in enumerate(groups.items(), 1):
      question = _question(group, _id_of(group, place, key), texts[key])
      questions.append(question)
      numbers.append(tuple(row.number for row in group))
      for candidate, row in zip(question.candidates, group, strict=True):
        others[question.id, candidate.id] = row.others
    return OwnFile(tuple(questions), others, problems, bool(self.labelled), tuple(numbers))

  def records(
    self, groups: dict[Any, list[_Row]], texts: dict[Any, str]
  ) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    """Yield (number, what its question is told apart by, record) of each candidate.

    An object with a list of candidates makes its group, and gives a record a candidate.
    """
    for number, record in self.table.rows:
      if self.table.columns is not None or not isinstance(record.get("candidates"), list):
        yield number, None, record
        continue
      shared = {name: value for name, value in record.items() if name != "candidates"}
      fields = self.resolve(tuple(shared), number, ("question", "question_id"))
      before = len(self.faults)
      found = self.texts(shared, fields, number)
      text = found.get("question", "")
      if len(self.faults) == before and not text.strip():
        what = "the field question is empty or missing; every line needs a question"
        self.faults.append((number, what))
      if len(self.faults) > before:
        continue
      key = (number, found.get("question_id", ""))
      groups[key], texts[key] = [], text
      for entry in record["candidates"]:
        if isinstance(entry, str):
          entry = {self.named.get("candidate", "candidate"): entry}
        if isinstance(entry, dict) and "candidates" not in entry:
          yield number, key, {**shared, **entry}
        else:
          what = f"a candidate is {quoted(str(entry))}; expected a text or an object"
          self.faults.append((number, what))

  def fields(self, columns: tuple[str, ...], number: int) -> dict[str, str]:
    """Find {field: column} of a row with these columns; log a column whose name is nearly a field's."""
    if columns not in self.resolved:
      fields = self.resolved[columns] = self.resolve(columns, number, column_names.NAMES)
      self.unseen.difference_update(fields)
      for column in columns:
        field = column_names.misspelt(column, fields)
        if field and column not in fields.values():
          text = "%s: the column %r is carried along unread; did you mean %r?"
          log.warning(text, self.table.source, column, field)
    return self.resolved[columns]

  def resolve(self, columns: tuple[str, ...], number: int, fields: Sequence[str]) -> dict[str, str]:
    """Find {field: column} of some fields; a JSON record may lack optional ones that were named."""
    there = set(map(column_names.simple, columns))
    named, names = {}, {}
    for field in fields:
      column = self.named.get(field)
      if column and self.table.columns is None and field not in self.needed:
        if column_names.simple(column) not in there:
          continue
      names[field] = column_names.NAMES[field]
      if column:
        named[field] = column
    return column_names.resolve(columns, named, self.table, number, names)

  def texts(
    self, record: Mapping[str, Any], fields: Mapping[str, str], number: int
  ) -> dict[str, str]:
    """Read the text of each field but the label; what is wrong goes to `faults`."""
    texts = {}
    for field, column in fields.items():
      if field == "label":
        continue
      value = record[column]
      texts[field] = "" if value is None else str(value)
      problem = text_problem(field, value)
      if self.labelled and field in IDS and texts[field] and not is_id(texts[field]):
        problem = problem or f"{field} is {quoted(texts[field])}; {ID}"  # which run files need
      if problem:
        self.faults.append((number, problem))
    return texts

  def row(self, number: int, record: Mapping[str, Any]) -> _Row | None:
    """Read one candidate; None for a row without question or candidate. Faults go to `faults`."""
    if not record:
      return None
    fields = self.fields(tuple(record), number)
    for name in REQUIRED:
      if name not in fields:
        inside = [key for key, value in record.items() if isinstance(value, list)]
        hint = (
          f"; if {inside[0]} holds the records, make this list the whole file" if inside else ""
        )
        what = f"the field {name} is missing; every line needs a {name}{hint}"
        raise self.table.error(what, number)
    if self.labelled is None:
      self.labelled = "label" in fields
    before = len(self.faults)
    texts = self.texts(record, fields, number)
    if len(self.faults) == before and not all(texts[name].strip() for name in REQUIRED):
      return None
    self.check_alike(number, fields, texts)
    label = UNKNOWN
    if self.labelled:
      value = record.get(fields.get("label", "label"))
      label = WORDS.get(str(value).strip().lower(), UNKNOWN)
      if value is None or value == "":
        self.faults.append((number, "the field label is missing; every line needs a label, 0 or 1"))
      elif label == UNKNOWN:
        what = f"label is {quoted(str(value))}; expected 0 or 1, yes or no, true or false"
        self.faults.append((number, what))
    read = {column for name, column in fields.items() if name != "label" or self.labelled}
    others = {name: value for name, value in record.items() if name not in read}
    for name, value in others.items():
      if isinstance(value, str) and (problem := text_problem(name, value)):
        self.faults.append((number, problem))
    return _Row(number, label, texts, others)

  def check_alike(self, number: int, fields: Mapping[str, str], texts: Mapping[str, str]) -> None:
    """Find an id, or a label, that this row has and the first one has not, or the other way round."""
    given = {name for name in IDS if texts.get(name)}
    if self.optional and "label" in fields:
      given.add("label")
    if self.given is None:
      self.given = given
    for name in sorted(given ^ self.given):
      has = "has a" if name in given else "has no"
      what = f"this line {has} {name}, unlike the first; give it on all lines or on none"
      self.faults.append((number, what))

  def check(self, groups: Mapping[Any, Sequence[_Row]], count: int, empty: int) -> None:
    """Refuse all faults at once, also ids that two questions or two candidates have."""
    source = self.table.source
    for name, column in self.named.items():
      if name in self.unseen and count > empty:
        what = f"no row has a column {quoted(column)}, which was named for {name}"
        raise InputError(f"{source}: {what}; correct its name, or leave it out")
    first: dict[str, int] = {}
    for place, (key, group) in enumerate(groups.items(), 1):
      question_id = _id_of(group, place, key)
      number = group[0].number if group else key[0]
      if question_id in first:
        what = (
          f"question_id {quoted(question_id)} was already on {self.table.place(first[question_id])}"
        )
        how = "give each question its own id (without one they are q1, q2 …)"
        self.faults.append((number, f"{what}; {how}, and hold it in one object or in rows alone"))
      first[question_id] = number
      taken: set[str] = set()
      for row in group:
        candidate_id = row.texts.get("candidate_id", "")
        if candidate_id in taken:
          what = (
            f"candidate_id {quoted(candidate_id)} occurs twice in question {quoted(question_id)}"
          )
          self.faults.append((row.number, f"{what}; give each candidate its own id"))
        if candidate_id:
          taken.add(candidate_id)
    self.table.refuse(self.faults)
    if not groups:
      what = "nothing is left" if count else "nothing follows the header"
      raise self.table.error(f"{what}; add one candidate a line")


def _id_of(rows: Sequence[_Row], place: int, key: Any) -> str:
  given = rows[0].texts.get("question_id") if rows else key[1]
  return given or f"q{place}"


def _question(rows: Sequence[_Row], question_id: str, text: str) -> Question:
  judged: dict[str, set[int]] = defaultdict(set)
  for row in rows:
    judged[row.texts["candidate"]].add(row.label)
  candidates = []
  for i, row in enumerate(rows):
    previous, after, title = (row.texts.get(name, "") for name in CONTEXT)
    around = label_of(judged, previous), label_of(judged, after)
    candidate_id = row.texts.get("candidate_id") or f"{question_id}-{i}"
    sentence = row.texts["candidate"]
    candidates.append(Candidate(candidate_id, sentence, row.label, previous, after, *around, title))
  return Question(question_id, text, tuple(candidates))


def rows(own: OwnFile, besides: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
  """Yield the rows of `own` with the fields' own names, so that `read` finds the same questions.

  A column of the table that has the name of one of ours is called input_NAME.

  Args:
    own: what was read.
    besides: names of columns that will be added to the rows.

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
