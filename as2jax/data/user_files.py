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
      again = candidate.label in seen
      if seen:
        (repeated if again else contradictory).append(line)
      seen.add(candidate.label)
      if not (again and drop):
        candidates.append(candidate)
        lines.append(line)
        document = candidate.id.rpartition("-")[0]
        others[question.id, candidate.id] = {"DocumentID": document}
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
    self.faults: list[tuple[int, str]] = []
    self.resolved: dict[tuple[str, ...], dict[str, str]] = {}  # columns -> {field: column}
    self.unseen = set(named) if table.columns is None else set()  # fields that no record had
    if table.columns is not None:
      fields = self.fields(table.columns, 1)
      for name in (*REQUIRED, *["label"] * bool(labelled)):
        if name not in fields:
          raise table.error(column_names.missing(name, table.columns))

  def own_file(self, drop: bool, lenient: bool) -> OwnFile:
    """Group the rows by question, and make the questions."""
    table = self.table
    groups: dict[Any, list[_Row]] = {}
    texts: dict[Any, str] = {}
    labels: dict[Any, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    empty, repeated, contradictory = [], [], []
    rows, earlier = 0, None
    for number, key, record in self.records(groups, texts):
      rows += 1
      row = self.row(number, record)
      if row is None:
        empty.append(number)
        continue
      earlier = earlier or row
      self.check_alike(row, earlier)
      text = row.texts["question"]
      key = key or row.texts.get("question_id") or text
      group = groups.setdefault(key, [])
      if texts.setdefault(key, text) != text:
        self.faults.append((number, self.two_texts(key, text, texts[key], group)))
      seen = labels[key][row.texts["candidate"]]
      if seen:
        (repeated if row.label in seen else contradictory).append(number)
      if not (drop and row.label in seen):
        group.append(row)
      seen.add(row.label)
    if rows - len(empty) and (absent := [name for name in self.named if name in self.unseen]):
      column = quoted(self.named[absent[0]])
      what = f"no row has a column {column}, which was named for {absent[0]}"
      raise InputError(f"{table.source}: {what}; correct its name, or leave it out")
    problems = Problems(rows, tuple(empty), tuple(repeated), tuple(contradictory), table.unit)
    if empty and not drop and not lenient:
      what = f"{problems}; mend the file, or leave them out: --drop"
      self.faults.insert(0, (empty[0], what))
    self.check_ids(groups)
    table.refuse(self.faults)
    if not groups:
      what = "nothing is left" if rows else "nothing follows the header"
      raise table.error(f"{what}; add one candidate a line")
    questions, others, numbers = [], {}, []
    for place, (key, group) in enumerate(groups.items(), 1):
      question = _question(group, place, key, texts[key])
      questions.append(question)
      numbers.append(tuple(row.number for row in group))
      for candidate, row in zip(question.candidates, group, strict=True):
        others[question.id, candidate.id] = row.others
    return OwnFile(tuple(questions), others, problems, bool(self.labelled), tuple(numbers))

  def two_texts(self, key: str, text: str, earlier: str, group: Sequence[_Row]) -> str:
    """Say that one question_id stands for two texts."""
    there = self.table.place(group[0].number) if group else "an earlier line"
    return (
      f"question_id {quoted(key)} reads {quoted(text)} here and {quoted(earlier)} on {there}; give "
      "each question its own id"
    )

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
      found = {field: shared[column] for field, column in fields.items()}
      problems = [text_problem(field, value) for field, value in found.items()]
      text, question_id = (found.get(field) for field in ("question", "question_id"))
      question_id = "" if question_id is None else str(question_id)
      if not any(problems) and not (text or "").strip():
        problems.append("the field question is empty or missing; every line needs a question")
      if question_id and self.labelled and not is_id(question_id):
        problems.append(f"question_id is {quoted(question_id)}; {ID}")
      if any(problems):
        self.faults += [(number, problem) for problem in problems if problem]
        continue
      key = (number, question_id)
      groups[key], texts[key] = [], text
      for entry in record["candidates"]:
        if isinstance(entry, str):
          entry = {self.named.get("candidate", "candidate"): entry}
        if not isinstance(entry, dict) or "candidates" in entry:
          problem = f"a candidate is {quoted(str(entry))}; expected a text or an object"
          self.faults.append((number, problem))
          continue
        yield number, key, {**shared, **entry}

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
    named = {field: self.named[field] for field in fields if field in self.named}
    names = {field: column_names.NAMES[field] for field in fields}
    if self.table.columns is None:
      there = set(map(column_names.simple, columns))
      needed = (*REQUIRED, *["label"] * bool(self.labelled))
      for field in set(named).difference(needed):
        if column_names.simple(named[field]) not in there:
          del named[field], names[field]
    return column_names.resolve(columns, named, self.table, number, names)

  def row(self, number: int, record: Mapping[str, Any]) -> _Row | None:
    """Read one candidate; None for a row without question or candidate. Faults go to `faults`."""
    if not record:
      return None
    fields = self.fields(tuple(record), number)
    if absent := [name for name in REQUIRED if name not in fields]:
      inside = [key for key, value in record.items() if isinstance(value, list)]
      hint = f"; if {inside[0]} holds the records, make this list the whole file" if inside else ""
      what = f"the field {absent[0]} is missing; every line needs a {absent[0]}{hint}"
      raise self.table.error(what, number)
    texts, problems = {}, []
    for field, column in fields.items():
      if field != "label":
        value = record[column]
        problems.append(text_problem(field, value))
        texts[field] = "" if value is None else str(value)
    if not any(problems) and not all(texts[name].strip() for name in REQUIRED):
      return None
    label = UNKNOWN
    problems.append(self.label_problem("label" in fields))
    if self.labelled:
      value = record.get(fields.get("label", "label"))
      label = WORDS.get(str(value).strip().lower(), UNKNOWN)
      if value is None or value == "":
        problems.append("the field label is missing; every line needs a label, 0 or 1")
      elif label == UNKNOWN:
        what = f"label is {quoted(str(value))}; expected 0 or 1, yes or no, true or false"
        problems.append(what)
      for name in IDS:  # run files have columns separated by white space
        if texts.get(name) and not is_id(texts[name]):
          problems.append(f"{name} is {quoted(texts[name])}; {ID}")
    read = {column for name, column in fields.items() if name != "label" or self.labelled}
    others = {name: value for name, value in record.items() if name not in read}
    if _holds_half_a_pair(others):
      problems.append("a column holds half a surrogate pair; remove it")
    self.faults += [(number, problem) for problem in problems if problem]
    return _Row(number, label, texts, others)

  def label_problem(self, here: bool) -> str:
    """Say that labels are on some lines only; "" where they are on all or on none so far."""
    if self.labelled is None:
      self.labelled = here
    if not self.optional or self.labelled == here:
      return ""
    this, others = ("no label", "have one") if self.labelled else ("a label", "have none")
    return f"this line has {this}, earlier ones {others}; give it on all lines or on none"

  def check_alike(self, row: _Row, earlier: _Row) -> None:
    """Find an id that this row has and the first one has not, or the other way round."""
    for name in IDS:
      if bool(row.texts.get(name)) != bool(earlier.texts.get(name)):
        here, there = ("has", "has none") if row.texts.get(name) else ("has no", "has one")
        place = f"{self.table.place(earlier.number)} {there}"
        what = f"this line {here} {name}, {place}; give it on all lines or on none"
        self.faults.append((row.number, what))

  def check_ids(self, groups: Mapping[Any, Sequence[_Row]]) -> None:
    """Find ids that two questions or two candidates have."""
    first: dict[str, int] = {}
    for place, (key, group) in enumerate(groups.items(), 1):
      question_id = _id_of(group, place, key)
      number = group[0].number if group else key[0]
      if question_id in first:
        what = (
          f"question_id {quoted(question_id)} was already on {self.table.place(first[question_id])}"
        )
        how = (
          "give each question its own id (without one they are q1, q2 …), and hold it in one object"
        )
        self.faults.append((number, f"{what}; {how}, or in rows alone"))
      first[question_id] = number
      taken: set[str] = set()
      for row in group:
        candidate_id = row.texts.get("candidate_id")
        if candidate_id and candidate_id in taken:
          what = (
            f"candidate_id {quoted(candidate_id)} occurs twice in question {quoted(question_id)}"
          )
          self.faults.append((row.number, f"{what}; give each candidate its own id"))
        taken.add(candidate_id or "")


def _holds_half_a_pair(values: Mapping[str, Any]) -> bool:
  """Tell whether a text in `values` holds half a surrogate pair, which no file can hold."""
  try:
    str(values).encode()
  except UnicodeEncodeError:
    return True
  return False


def _id_of(rows: Sequence[_Row], place: int, key: Any) -> str:
  given = rows[0].texts.get("question_id") if rows else key[1]
  return given or f"q{place}"


def _question(rows: Sequence[_Row], place: int, key: Any, text: str) -> Question:
  question_id = _id_of(rows, place, key)
  judged: dict[str, set[int]] = defaultdict(set)
  for row in rows:
    judged[row.texts["candidate"]].add(row.label)
  candidates = []
  for i, row in enumerate(rows):
    previous, after, title = (row.texts.get(name, "") for name in CONTEXT)
    candidates.append(
      Candidate(
        row.texts.get("candidate_id") or f"{question_id}-{i}",
        row.texts["candidate"],
        row.label,
        previous,
        after,
        label_of(judged, previous),
        label_of(judged, after),
        title,
      )
    )
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
