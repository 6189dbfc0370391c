"""A person's own questions and candidates: files in the forms of `table`, and pandas frames."""

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data.datasets import columns as column_names
from as2jax.data.datasets.fields import IDS, text_field, worded_label
from as2jax.data.datasets.lines import Lines, check_id, quoted
from as2jax.data.datasets.table import Table, open_table
from as2jax.data.datasets.wikiqa import HEADER, read_wikiqa
from as2jax.data.record import UNKNOWN, Candidate, Question
from as2jax.runtime.errors import InputError

REQUIRED = ("question", "candidate")
CONTEXT = ("previous", "next", "title")
SHOWN = 5  # lines of a problem that a message names
log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
  """One candidate of the table; "" where a field is absent, `others` by the table's own names."""

  line: int
  label: int
  question: str
  candidate: str
  previous: str = ""
  next: str = ""
  title: str = ""
  question_id: str = ""
  candidate_id: str = ""
  others: Mapping[str, Any] = dataclasses.field(default_factory=dict)


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
    kinds = (
      (self.empty, "without a question or a candidate"),
      (self.repeated, "repeating a candidate of their question"),
      (self.contradictory, "repeating one with another label"),
    )
    parts = [f"{len(its)} {what} ({self._numbers(its)})" for its, what in kinds if its]
    return f"{self.rows} rows, of these {', '.join(parts)}" if parts else ""

  def _numbers(self, numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:SHOWN])) + ", …" * (len(numbers) > SHOWN)
    return f"{self.place}{'s' * (len(numbers) > 1)} {shown}"


@dataclasses.dataclass(frozen=True)
class OwnFile:
  """What a table holds.

  Attributes:
    questions: in the order of first sight.
    others: (question id, candidate id) -> the other columns of its row, by their own names.
    numbers: of the rows of each question's candidates: lines, or positions in a frame.
    problems: what is odd in it; of WikiQA's own format, which rows are repeated.
    labelled: whether it has labels, and they were read.

  """

  questions: tuple[Question, ...]
  others: Mapping[tuple[str, str], Mapping[str, Any]]
  problems: Problems
  labelled: bool
  numbers: tuple[tuple[int, ...], ...] = ()


def load(
  paths: Mapping[str, str], read: Callable[[epath.Path], tuple[Question, ...]], *, name: str
) -> dict[str, tuple[Question, ...]]:
  """Reads a user's own data set: split (train, dev, test) -> path; `name` is its data.name.

  A split with the path "" is left out.

  Raises:
    InputError: no path at all, or a file is wrong.

  """
  present = {split: path for split, path in paths.items() if path}
  if not present:
    raise InputError(
      f"data.name = {name!r} needs the paths of your files: give --config.data."
      + ", --config.data.".join(paths)
    )
  return {split: read(epath.Path(path).expanduser()) for split, path in present.items()}


def read_labelled(
  source: Any, *, columns: Mapping[str, str] | str = "", drop: bool = False
) -> tuple[Question, ...]:
  """The questions of `read`, each candidate with its label."""
  return read(source, labelled=True, columns=columns, drop=drop).questions


def read_partly_labelled(
  source: Any, *, columns: Mapping[str, str] | str = "", drop: bool = False
) -> tuple[Question, ...]:
  """As `read_labelled`, but there may be no labels: what teachers score needs none."""
  return read(source, labelled=None, columns=columns, drop=drop).questions


def read_unlabelled(
  source: Any, *, columns: Mapping[str, str] | str = "", drop: bool = False
) -> tuple[Question, ...]:
  """As `read_labelled`, for ranking: labels are not needed, and ignored where there are any."""
  return read(source, labelled=False, columns=columns, drop=drop).questions


def read(
  source: Any,
  *,
  labelled: bool | None,
  columns: Mapping[str, str] | str = "",
  drop: bool = False,
  lenient: bool = False,
) -> OwnFile:
  """Reads questions with candidates from a person's table.

  A row is a candidate, with the fields question, candidate, label and optionally previous, next,
  title, question_id and candidate_id, each in a column of one of its `columns.NAMES`, or in that which
  `columns` names; every other column is carried along. An object of JSON-lines may also be a
  question with its `candidates`, texts or objects. WikiQA's own format is read as such. Rows with one
  question_id, or without ids one question text, are one question, wherever they stand; questions come
  in the order of first sight. Without ids, questions are q1, q2 … and their candidates q1-0, q1-1 ….

  Args:
    source: a path, or a pandas frame.
    labelled: whether labels are read: needed (True), ignored (False: two tab-separated columns
      without a header will do), or read where there is a column (None).
    columns: {field: column}, or as text: `question=query,label=is_correct`.
    drop: whether rows without text, and those that repeat a candidate with its label, are left out;
      else the first are an error, and the second kept and logged.
    lenient: whether rows without text are left out and told in `problems` alone.

  Raises:
    InputError: anything else; names file, line and value.

  """
  named = column_names.parse(columns) if isinstance(columns, str) else dict(columns)
  column_names.check(named, column_names.NAMES, "columns")
  if not named and _is_wikiqa(source):
    return _of_wikiqa(source, labelled is not False, drop)
  recognised = lambda names: column_names.recognised(names, named)
  table = open_table(source, recognised, bare=() if labelled is not False else REQUIRED)
  reading = _Reading(table, named, labelled)
  groups = reading.groups(drop)
  _tell(table, reading.problems, drop, lenient)
  if not groups:
    what = "nothing is left" if reading.problems.rows else "nothing follows the header"
    raise table.error(f"{what}; add one candidate a line")
  questions = tuple(
    _question(rows, i, table, key) for i, (key, rows) in enumerate(groups.items(), 1)
  )
  others = {
    (question.id, candidate.id): row.others
    for question, rows in zip(questions, groups.values(), strict=True)
    for candidate, row in zip(question.candidates, rows, strict=True)
  }
  numbers = tuple(tuple(row.line for row in rows) for rows in groups.values())
  return OwnFile(questions, others, reading.problems, bool(reading.labelled), numbers)


def _of_wikiqa(source: Any, labelled: bool, drop: bool) -> OwnFile:
  """A file in WikiQA's form, whose sentences keep their neighbours, also where they are dropped."""
  line, repeated, questions, numbers = 1, [], [], []
  for question in read_wikiqa(source, labelled=labelled):
    seen: set[tuple[str, int]] = set()
    kept, lines = [], []
    for candidate in question.candidates:
      line += 1
      again = (candidate.text, candidate.label) in seen
      seen.add((candidate.text, candidate.label))
      repeated += [line] * again
      if not (again and drop):
        kept.append(candidate)
        lines.append(line)
    questions.append(dataclasses.replace(question, candidates=tuple(kept)))
    numbers.append(tuple(lines))
  others = {
    (question.id, candidate.id): {"DocumentID": candidate.id.rpartition("-")[0]}
    for question in questions
    for candidate in question.candidates
  }
  problems = Problems(line - 1, repeated=tuple(repeated))
  if drop and repeated:
    log.warning("%s: %s; repeated ones are left out", source, problems)
  return OwnFile(tuple(questions), others, problems, labelled, tuple(numbers))


def _is_wikiqa(source: Any) -> bool:
  if hasattr(source, "columns"):
    return False
  path = epath.Path(source).expanduser()
  if path.name.lower().endswith(".parquet"):
    return False
  return next(
    (tuple(line.rstrip("\r\n").split("\t")) == HEADER for _, line in Lines(path, ends=True)), False
  )


class _Reading:
  """The rows of a table, and what is odd in them."""

  def __init__(self, table: Table, named: Mapping[str, str], labelled: bool | None):
    self._table, self._named, self.labelled = table, named, labelled
    self._resolved: dict[tuple[str, ...], dict[str, str]] = {}
    self._misspelt: set[str] = set()  # columns that were told of
    self._problem_lines: dict[str, list[int]] = {"empty": [], "repeated": [], "contradictory": []}
    self._rows = 0
    if table.columns is not None:
      fields = self._fields(table.columns)
      for name in (*REQUIRED, *["label"] * bool(labelled)):
        if name not in fields:
          raise table.error(column_names.missing(name, table.columns))
      if labelled is None:
        self.labelled = "label" in fields

  @property
  def problems(self) -> Problems:
    """What was found; whole once `groups` has returned."""
    place = self._table.place(0).split()[0]
    return Problems(self._rows, *map(tuple, self._problem_lines.values()), place)

  def groups(self, drop: bool) -> dict[Any, list[Row]]:
    """The rows of each question, by its id, its text, or the line that holds all of it."""
    table = self._table
    groups: dict[Any, list[Row]] = {}
    labels: dict[Any, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    earlier: Row | None = None
    for key, row in self._all(groups):
      self._rows += 1
      if row is None:
        self._problem_lines["empty"].append(table.number or 0)
        continue
      earlier = earlier or row
      _check_alike(row, earlier, table)
      key = key or row.question_id or row.question
      group = groups.setdefault(key, [])
      if group and group[0].question != row.question:
        raise table.error(
          f"question_id {quoted(row.question_id)} reads {quoted(row.question)} here and "
          f"{quoted(group[0].question)} on {table.place(group[0].line)}; give each question its own id"
        )
      seen = labels[key][row.candidate]
      if seen:
        self._problem_lines["repeated" if row.label in seen else "contradictory"].append(row.line)
      if not (drop and row.label in seen):
        group.append(row)
      seen.add(row.label)
    return {key: rows for key, rows in groups.items() if rows or isinstance(key, tuple)}

  def _all(self, groups: dict[Any, list[Row]]) -> Iterator[tuple[Any, Row | None]]:
    """(what its question is told apart by, row) of each row; None for a row without text."""
    for record in self._table:
      if self._table.columns is None and isinstance(record.get("candidates"), list):
        key = self._nested_key(record, groups)
        for entry in record["candidates"]:
          yield key, self._row(self._nested_record(record, entry))
      else:
        yield None, self._row(record)

  def _nested_key(self, record: Mapping[str, Any], groups: dict[Any, list[Row]]) -> Any:
    """Makes the group of a question that one object holds whole."""
    table = self._table
    fields = self._fields(tuple(name for name in record if name != "candidates"))
    question_id = text_field("question_id", record, table, fields.get("question_id", ""))
    text = text_field("question", record, table, fields.get("question", ""))
    if not text.strip():
      raise table.error("the field question is empty or missing; every line needs a question")
    key = (table.number, question_id, text)
    if question_id and any(isinstance(k, tuple) and k[1] == question_id for k in groups):
      raise table.error(f"question_id {quoted(question_id)} was already on an earlier line")
    groups[key] = []
    return key

  def _nested_record(self, record: Mapping[str, Any], entry: Any) -> dict[str, Any]:
    shared = {name: value for name, value in record.items() if name != "candidates"}
    if isinstance(entry, str):
      return {**shared, "candidate": entry}
    if isinstance(entry, dict) and "candidates" not in entry:
      return {**shared, **entry}
    raise self._table.error(f"a candidate is {quoted(str(entry))}; expected a text or an object")

  def _fields(self, columns: tuple[str, ...]) -> dict[str, str]:
    if columns not in self._resolved:
      fields = column_names.resolve(columns, self._named, self._table.error)
      self._resolved[columns] = fields
      others = [column for column in columns if column not in fields.values()]
      for column, field in column_names.misspelt(others, fields):
        if column not in self._misspelt:
          text = "%s: the column %r is carried along unread; did you mean %r?"
          log.warning(text, self._table.source, column, field)
        self._misspelt.add(column)
    return self._resolved[columns]

  def _row(self, record: Mapping[str, Any]) -> Row | None:
    table, fields = self._table, self._fields(tuple(record))
    if not record:
      return None
    for name in REQUIRED:
      if name not in fields:
        raise table.error(f"the field {name} is missing; every line needs a {name}")
    texts = {
      name: text_field(name, record, table, column)
      for name, column in fields.items()
      if name != "label"
    }
    if not all(texts[name].strip() for name in REQUIRED):
      return None
    if self.labelled is None:
      self.labelled = "label" in fields
    label = UNKNOWN
    if self.labelled:
      label = worded_label(record.get(fields.get("label", "label")), table)
      for name in IDS:  # run files have columns separated by white space
        if texts.get(name):
          check_id(texts[name], name, table)
    own = {column for name, column in fields.items() if name != "label" or self.labelled}
    others = {name: value for name, value in record.items() if name not in own}
    try:
      str(others).encode()
    except UnicodeEncodeError as error:
      raise table.error("a column holds half a surrogate pair; remove it") from error
    return Row(table.number or 0, label, **texts, others=others)


def _tell(table: Table, problems: Problems, drop: bool, lenient: bool) -> None:
  """Says what is odd: an error where it cannot be ranked, else one line in the log."""
  text = str(problems)
  if not text or lenient:
    return
  if problems.empty and not drop:
    raise table.error(f"{text}; mend the file, or leave them out: --drop", problems.empty[0])
  if drop:
    log.warning("%s: %s; rows without text and repeated ones are left out", table.source, text)
  else:
    log.warning("%s: %s", table.source, text)


def _check_alike(row: Row, earlier: Row, table: Table) -> None:
  for name in IDS:
    if bool(getattr(row, name)) != bool(getattr(earlier, name)):
      here, there = ("has", "has none") if getattr(row, name) else ("has no", "has one")
      raise table.error(
        f"this line {here} {name}, {table.place(earlier.line)} {there}; give it on all lines or on none"
      )


def _question(rows: Sequence[Row], number: int, table: Table, key: Any) -> Question:
  if not rows:  # of an object without candidates
    _, question_id, text = key
    return Question(question_id or f"q{number}", text, ())
  question_id = rows[0].question_id or f"q{number}"
  judged: dict[str, set[int]] = defaultdict(set)
  for row in rows:
    judged[row.candidate].add(row.label)
  candidates: dict[str, Candidate] = {}
  for i, row in enumerate(rows):
    candidate_id = row.candidate_id or f"{question_id}-{i}"
    if candidate_id in candidates:
      raise table.error(
        f"candidate_id {quoted(candidate_id)} occurs twice in question {quoted(question_id)}; "
        "give each candidate its own id",
        row.line,
      )
    candidates[candidate_id] = Candidate(
      candidate_id,
      row.candidate,
      row.label,
      row.previous,
      row.next,
      _label_of(row.previous, judged),
      _label_of(row.next, judged),
      row.title,
    )
  return Question(question_id, rows[0].question, tuple(candidates.values()))


def _label_of(text: str, judged: Mapping[str, set[int]]) -> int:
  """The label of a context sentence that is a candidate too (SPEC.md 3), else `UNKNOWN`."""
  labels = judged.get(text, set())
  return next(iter(labels)) if len(labels) == 1 else UNKNOWN


def rows(own: OwnFile, besides: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
  """The rows of `own` with the fields' own names, so that a reader finds the same questions.

  A column of the table that has the name of one of ours is called input_NAME.

  Args:
    own: what was read.
    besides: names of columns that will be added to the rows.

  """
  context = [
    name for name in CONTEXT if any(getattr(c, name) for q in own.questions for c in q.candidates)
  ]
  ours = {"question_id", "question", "candidate_id", "candidate", *context, *besides}
  ours |= {"label"} if own.labelled else set()
  for question in own.questions:
    for candidate in question.candidates:
      row: dict[str, Any] = {
        "question_id": question.id,
        "question": question.text,
        "candidate_id": candidate.id,
        "candidate": candidate.text,
        **({"label": candidate.label} if own.labelled else {}),
        **{name: getattr(candidate, name) for name in context},
      }
      for name, value in own.others.get((question.id, candidate.id), {}).items():
        row[f"input_{name}" if name in ours else name] = value
      yield row
