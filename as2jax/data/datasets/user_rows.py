"""The rows of a person's table, grouped by question, and what is odd in them."""

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from as2jax.data.datasets import columns as column_names
from as2jax.data.datasets.fields import IDS, text_field, worded_label
from as2jax.data.datasets.lines import check_id, quoted
from as2jax.data.datasets.table import Table
from as2jax.data.record import UNKNOWN
from as2jax.runtime.errors import InputError

REQUIRED = ("question", "candidate")
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


class Reading:
  """The rows of a table, and what is odd in them."""

  def __init__(self, table: Table, named: Mapping[str, str], labelled: bool | None):
    self._table, self._named, self.labelled = table, named, labelled
    self._optional = labelled is None  # labels are read where there are any
    self._resolved: dict[tuple[str, ...], dict[str, str]] = {}
    self._of_questions: dict[tuple[str, ...], dict[str, str]] = {}  # likewise, beside `candidates`
    self._unseen = set(named)  # fields whose columns no record had
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
    unseen = [name for name in self._named if name in self._unseen]
    if unseen and any(groups.values()):
      column = quoted(self._named[unseen[0]])
      raise InputError(
        f"{table.source}: no row has a column {column}, which was named for {unseen[0]}; correct its "
        "name, or leave it out"
      )
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
    columns = tuple(name for name in record if name != "candidates")
    if columns not in self._of_questions:
      self._of_questions[columns] = self._resolve(columns, ("question", "question_id"))
    fields = self._of_questions[columns]
    question_id = text_field("question_id", record, table, fields.get("question_id", ""))
    text = text_field("question", record, table, fields.get("question", ""))
    if not text.strip():
      raise table.error("the field question is empty or missing; every line needs a question")
    if question_id and self.labelled:
      check_id(question_id, "question_id", table)
    key = (table.number, question_id, text)
    groups[key] = []
    return key

  def _nested_record(self, record: Mapping[str, Any], entry: Any) -> dict[str, Any]:
    shared = {name: value for name, value in record.items() if name != "candidates"}
    if isinstance(entry, str):
      return {**shared, self._named.get("candidate", "candidate"): entry}
    if isinstance(entry, dict) and "candidates" not in entry:
      return {**shared, **entry}
    raise self._table.error(f"a candidate is {quoted(str(entry))}; expected a text or an object")

  def _fields(self, columns: tuple[str, ...]) -> dict[str, str]:
    if columns not in self._resolved:
      fields = self._resolve(columns, column_names.NAMES)
      self._unseen.difference_update(fields)
      self._resolved[columns] = fields
      others = [column for column in columns if column not in fields.values()]
      for column, field in column_names.misspelt(others, fields):
        if column not in self._misspelt:
          text = "%s: the column %r is carried along unread; did you mean %r?"
          log.warning(text, self._table.source, column, field)
        self._misspelt.add(column)
    return self._resolved[columns]

  def _resolve(self, columns: tuple[str, ...], fields: Iterable[str]) -> dict[str, str]:
    """{field: column} of some fields; a JSON record may lack optional ones that were named."""
    named = {field: self._named[field] for field in fields if field in self._named}
    absent: set[str] = set()
    if self._table.columns is None:
      there = set(map(column_names.simple, columns))
      needed = (*REQUIRED, *["label"] * bool(self.labelled))
      absent = {f for f in named if f not in needed and column_names.simple(named[f]) not in there}
    return column_names.resolve(
      columns,
      {field: column for field, column in named.items() if field not in absent},
      self._table.error,
      {field: column_names.NAMES[field] for field in fields if field not in absent},
    )

  def _row(self, record: Mapping[str, Any]) -> Row | None:
    if not record:
      return None
    table, fields = self._table, self._fields(tuple(record))
    for name in REQUIRED:
      if name not in fields:
        inside = [key for key, value in record.items() if isinstance(value, list)]
        hint = (
          f"; if {inside[0]} holds the records, make this list the whole file" if inside else ""
        )
        raise table.error(f"the field {name} is missing; every line needs a {name}{hint}")
    texts = {
      name: text_field(name, record, table, column)
      for name, column in fields.items()
      if name != "label"
    }
    if not all(texts[name].strip() for name in REQUIRED):
      return None
    if self.labelled is None:
      self.labelled = "label" in fields
    elif self._optional and self.labelled != ("label" in fields):
      here, others = ("no label", "have one") if self.labelled else ("a label", "have none")
      raise table.error(
        f"this line has {here}, earlier ones {others}; give it on all lines or on none"
      )
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


def _check_alike(row: Row, earlier: Row, table: Table) -> None:
  for name in IDS:
    if bool(getattr(row, name)) != bool(getattr(earlier, name)):
      here, there = ("has", "has none") if getattr(row, name) else ("has no", "has one")
      raise table.error(
        f"this line {here} {name}, {table.place(earlier.line)} {there}; give it on all lines or on none"
      )
