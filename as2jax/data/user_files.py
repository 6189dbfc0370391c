"""Questions and candidates of users: the tables that `tables` reads, grouped by question."""

import contextlib
import dataclasses
import difflib
import itertools
import json
import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data import tables
from as2jax.data.lines import ID, IDS, NAMES, is_id, quoted, text_problem
from as2jax.data.record import CONTEXT, UNKNOWN, Candidate, Question, label_of
from as2jax.data.tables import Table

REQUIRED = ("question", "candidate")
WIKIQA_COLUMNS = (
  "QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence", "Label",
)  # fmt: skip
WORDS = {"0": 0, "0.0": 0, "no": 0, "false": 0, "1": 1, "1.0": 1, "yes": 1, "true": 1}  # of a label
ROW, LISTED, WHOLE = "row", "listed", "whole"  # a candidate, one of a question's list, no candidate
# What a table with labels, or one to train on, holds.
LABELLED = "labelled candidates"
PAIRS = "pairs of question and right answer"
WITH_NEGATIVES = "pairs of question and right answer with wrong answers"
# Kinds of faults of rows, as the counts of a message say them.
EMPTY = "without a question or a candidate"
NO_LABEL = "with a label other than 0 or 1, yes or no, true or false"
NO_TEXT = "with a field that is no text"
NO_ID = "without an id where others have one, or with one that has white space"
OTHER = "whose id or group is that of another row"
log = logging.getLogger(__name__)


@dataclasses.dataclass
class Problems:
  """What is odd in a table.

  Attributes:
    rows: how many there are.
    wrong: kind of fault -> numbers of the rows that have it.
    repeated: of those that repeat a candidate of their question with the same label.
    contradictory: of those that repeat a candidate with another label.
    place: "line" or "row".

  """

  rows: int = 0
  wrong: dict[str, list[int]] = dataclasses.field(default_factory=dict)
  repeated: list[int] = dataclasses.field(default_factory=list)
  contradictory: list[int] = dataclasses.field(default_factory=list)
  place: str = "line"

  def __str__(self) -> str:
    parts = []
    for what, numbers in (
      *self.wrong.items(),
      ("repeating a candidate of their question", self.repeated),
      ("repeating one with another label", self.contradictory),
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
    form: `LABELLED`, `PAIRS` or `WITH_NEGATIVES`; "" where no label was read.

  """

  questions: tuple[Question, ...]
  others: Mapping[tuple[str, str], Mapping[str, Any]]
  problems: Problems
  form: str


def read_labelled(source: Any) -> tuple[Question, ...]:
  """Read the questions of a table, each candidate with its label; see `read`."""
  return read(source, labelled=True).questions


def read_published(path: epath.PathLike, columns: Sequence[str] = ()) -> tuple[Question, ...]:
  """Read the questions of a file of a named data set, which nobody mends, of just these columns; see `read`."""
  table = tables.open_table(path)
  if columns and table.columns != columns:
    raise table.error(f"expected the columns {', '.join(columns)}; get the official file")
  return _of_table(table, True, {}, False, "get the official file").questions


def read(
  source: Any, *, labelled: bool | None, columns: Mapping[str, str] | str = "", drop: bool = False
) -> OwnFile:
  """Read questions with candidates from a user's table.

  A row is a candidate, with the fields question, candidate, label and optionally previous, next,
  title, question_id, candidate_id and group (of dependent questions), each in a column of one of its `tables.NAMES`, or in that which
  `columns` names; every other column is carried along. A row may also be a question with its
  `candidates`, a list of texts or objects, or with lists of its `positive` and `negative` ones. Rows in WikiQA's own form have their neighbours as context. Rows with one
  question_id, or without ids one question text, are one question, wherever they stand; questions come
  in the order of first sight. Without ids, questions are q1, q2 … and their candidates q1-0, q1-1 ….
  A row with candidates is a whole question: its id may not occur again. Without a column of labels
  the candidate of each row is right, and those in the columns `negative`, `negative_1` … are wrong.

  Args:
    source: a path, a pandas frame, or `hub:NAME[:CONFIG][:SPLIT]`.
    labelled: whether labels are read: needed (True; of pairs each candidate is right), ignored
      (False), or read where there is a column of labels or of negatives (None).
    columns: {field: column}, or as text: `question=query,label=is_correct`.
    drop: whether rows that are wrong, and those that repeat a candidate with its label, are left out;
      else the first are an error, and the second kept and logged.

  Raises InputError: anything else; names file, lines and values.

  """
  named = tables.named_columns(columns)
  table = tables.open_table(source)
  own = _of_table(table, labelled, named, drop, "mend the file, or leave them out: --drop")
  if str(own.problems):
    told = "%s: %s; rows that are wrong and repeated ones are left out" if drop else "%s: %s"
    log.warning(told, table.source, own.problems)
  if own.form:
    log.info("%s: %s, %d questions", table.source, own.form, len(own.questions))
  return own


def _of_table(
  table: Table, labelled: bool | None, named: Mapping[str, str], drop: bool, advice: str
) -> OwnFile:
  """Return what a table holds, see `read`; the error for rows that are wrong ends in `advice`."""
  if not table.rows:
    table.refuse()
  of_wikiqa = table.columns == WIKIQA_COLUMNS and table.unit == "line" and not named
  if of_wikiqa:
    _add_neighbours(table)
  records = _records(table, named.get("candidate", "candidate"))
  problems = Problems(len(records) + len(table.faults), place=table.unit)
  fields, form, negatives = _fields(table, records, named, labelled)
  groups = _grouped(table, records, fields, negatives, labels=bool(form))
  for group in groups if of_wikiqa else ():
    group.group = group.rows[0][2]["DocumentID"]
  questions, others = _questions(groups, table, problems, drop)
  for number, kind, _ in table.faults:
    problems.wrong.setdefault(kind, []).append(number)
  if table.faults and not drop:
    table.refuse(f". {problems}; {advice}")
  if not questions:
    raise table.error("no row holds a question and a candidate; add one candidate a line")
  return OwnFile(questions, others, problems, form)


def form_of(path: epath.PathLike, columns: Mapping[str, str] | str = "") -> str:
  """Tell from its columns what a file holds to train on; `LABELLED` where they tell nothing.

  Raises InputError: there is no column of questions or candidates, or another is named that is not there.
  """
  path = epath.Path(path).expanduser()
  if not (path.is_file() or tables.is_hub(path)):  # whoever reads it says so
    return LABELLED
  table, named = tables.open_table(path, first=True), tables.named_columns(columns)
  records = _records(table, named.get("candidate", "candidate"))
  there = _columns(table, records)
  if not there or "candidates" in there or any(kind != ROW for _, kind, _ in records):
    return LABELLED
  return _form(there, tables.resolve_columns(there, named, table, needed=REQUIRED))


def _columns(table: Table, records: Sequence[tuple[int, str, dict[str, Any]]]) -> tuple[str, ...]:
  """Return the columns of a table; of JSON those of all records, in the order of first sight."""
  if table.columns is not None:
    return table.columns
  return tuple(dict.fromkeys(name for _, _, record in records for name in record))


def _form(columns: Sequence[str], fields: Mapping[str, str]) -> str:
  if "label" in fields:
    return LABELLED
  return WITH_NEGATIVES if _negatives(columns, fields) else PAIRS


def _negatives(columns: Sequence[str], fields: Mapping[str, str]) -> list[str]:
  """Return the columns of wrong answers: `negative`, `negatives`, `negative_1`, `hard negative 2` …."""
  of_wrong = re.compile(r"(hard)?[ _-]*negatives?[ _-]*\d*", re.IGNORECASE)
  return [c for c in columns if of_wrong.fullmatch(c.strip()) and c not in fields.values()]


def _add_neighbours(table: Table) -> None:
  """Give rows in WikiQA's form the sentences around theirs, also those of rows that are dropped."""
  table.columns = (*WIKIQA_COLUMNS, "previous", "next")
  for (_, one), (_, two) in itertools.pairwise(table.rows):
    if one and two and one["QuestionID"] == two["QuestionID"]:
      if _follows(one["SentenceID"], two["SentenceID"]):
        one["next"], two["previous"] = two["Sentence"], one["Sentence"]


def _follows(id: str, after: str) -> bool:
  """Tell by their ids (`D1-3`, `D1-4`) whether one sentence stands behind another in a document."""
  document, _, place = id.rpartition("-")
  its, _, next_place = after.rpartition("-")
  numbered = place.isdecimal() and next_place.isdecimal()
  return its == document and numbered and int(next_place) == int(place) + 1


def _records(table: Table, name: str) -> list[tuple[int, str, dict[str, Any]]]:
  """Return (number, kind, record) of each row; a list of candidates gives one record each."""
  records: list[tuple[int, str, dict[str, Any]]] = []
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
        what = f"a candidate is {quoted(str(entry))}; expected a text or an object"
        table.faults.append((number, NO_TEXT, what))
  return records


def _listed(table: Table, number: int, record: Mapping[str, Any], name: str) -> Any:
  """Return a row's `candidates`, each with its label where `labels`, or lists of `positive` and `negative`, say it."""
  entries, labels = record.get("candidates"), record.get("labels")
  if isinstance(record.get("positive"), list) and entries is None:
    wrong = list(_wrong_answers(record, _negatives(tuple(record), {})))
    entries = [*record["positive"], *wrong]
    labels = [1] * len(record["positive"]) + [0] * len(wrong)
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
) -> tuple[dict[str, str], str, list[str]]:
  """Return the column of each field that is read, `OwnFile.form`, and the columns of wrong answers.

  The field `label` is there only where labels are read.
  """
  columns, needed = _columns(table, records), ["question"]
  if any(kind != WHOLE for _, kind, _ in records):
    needed.append("candidate")
  fields = tables.resolve_columns(columns, named, table, needed=needed)
  if labelled is False:
    fields.pop("label", None)
    return fields, "", []
  form, negatives = _form(columns, fields), _negatives(columns, fields)
  if form == LABELLED:
    return fields, form, []
  if form == PAIRS and labelled is None:
    return fields, "", []
  if "label" not in named:
    _check_pairs(table, columns, records, fields, negatives)
  return fields, form, negatives


def _check_pairs(
  table: Table,
  columns: Sequence[str],
  records: Sequence[tuple[int, str, dict[str, Any]]],
  fields: Mapping[str, str],
  negatives: Sequence[str],
) -> None:
  """Raise InputError where a table without a column of labels may have one by another name."""
  others = [c for c in columns if c not in fields.values() and c not in negatives]
  listed = any(kind != ROW for _, kind, _ in records)
  if listed or difflib.get_close_matches("label", others):
    tables.resolve_columns(columns, {}, table, needed=("label",))
  for column in others:
    values = set()
    for _, _, record in records:
      if record.get(column) is not None:
        values.add(str(record[column]).strip())
    values.discard("")
    if len(values) == 2 < len(records):
      raise table.error(
        f"there is no column label, and {column!r} has two values, {' and '.join(sorted(values))}: if they "
        f"tell right answers from wrong ones, --columns label={column}; if every answer is right, "
        "--columns label="
      )


def _grouped(
  table: Table,
  records: Sequence[tuple[int, str, dict[str, Any]]],
  fields: Mapping[str, str],
  negatives: Sequence[str],
  labels: bool,
) -> list[Group]:
  """Group rows by question, each candidate with its label if `labels`; rows that are wrong are faults."""
  groups: dict[Any, Group] = {}
  needed = set()  # ids that some row has, so that all need them
  for _, _, record in records:
    needed.update(name for name in IDS if record.get(fields.get(name)) not in (None, ""))
  for number, kind, record in records:
    texts, wrong, faults = _fields_of_row(record, fields, negatives)
    question, question_id = texts["question"], texts["question_id"]
    if not faults and not (question.strip() and (kind == WHOLE or texts["candidate"].strip())):
      empty = "candidate" if question.strip() else "question"
      faults.append((EMPTY, f"there is no {empty}"))
    for name in sorted(needed):
      value = texts[name]
      if kind == WHOLE and name == "candidate_id":
        continue
      if not value or (labels and not is_id(value)):  # run files need ids that are
        told = f"{name} is {quoted(value)}; give one on all lines or none; {ID}"
        faults.append((NO_ID, told))
    label = UNKNOWN
    if labels and kind != WHOLE:
      word = str(record.get(fields["label"])) if "label" in fields else "1"
      label = WORDS.get(word.strip().lower(), UNKNOWN)
      if label == UNKNOWN:
        faults.append((NO_LABEL, f"label is {quoted(word)}"))
    key = (question_id or question) if kind == ROW else number
    group = groups.get(key) or Group(question_id, question, number, texts["group"])
    if group.group != texts["group"]:
      what = f"group is {quoted(texts['group'])} here and {quoted(group.group)} on "
      faults.append((OTHER, f"{what}{table.place(group.number)}; give each question one group"))
    if group.text != question:
      what = (
        f"question_id {quoted(question_id)} reads {quoted(question)} here and {quoted(group.text)}"
      )
      where = table.place(group.number)
      faults.append((OTHER, f"{what} on {where}; give each question its own id"))
    table.faults += [(number, *fault) for fault in faults[:1]]
    if faults:
      continue
    groups[key] = group
    if kind == WHOLE:
      continue
    around = {name: texts[name] for name in CONTEXT}
    candidate = Candidate(texts["candidate_id"], texts["candidate"], label, **around)
    taken = {column for name, column in fields.items() if name != "group"}.union(negatives)
    rest = {name: value for name, value in record.items() if name not in taken}
    group.rows.append((number, candidate, rest))
    group.rows += [(number, Candidate("", text, 0), rest) for text in wrong]
  return list(groups.values())


def _fields_of_row(
  record: Mapping[str, Any], fields: Mapping[str, str], negatives: Sequence[str]
) -> tuple[dict[str, str], list[Any], list[tuple[str, str]]]:
  """Return the text of each field of a row, its wrong answers, and as faults what of both is no text."""
  texts = dict.fromkeys((*REQUIRED, *CONTEXT, *IDS, "group"), "")
  faults: list[tuple[str, str]] = []
  wrong = list(_wrong_answers(record, negatives))
  for text in wrong:
    if problem := text_problem("negative", text):
      faults.append((NO_TEXT, problem))
  for name, column in fields.items():
    value = record.get(column)
    if name == "label" or value is None:
      continue
    if name in NAMES and isinstance(value, float) and value.is_integer():
      value = int(value)  # of a frame, whose column lacks some
    if problem := text_problem(name, value):
      faults.append((NO_TEXT, problem))
    texts[name] = str(value)
  return texts, wrong, faults


def _wrong_answers(record: Mapping[str, Any], negatives: Sequence[str]) -> Iterator[Any]:
  """Yield what is in the columns of wrong answers, each a text, or a list of texts (also as JSON)."""
  for column in negatives:
    value = record.get(column)
    if isinstance(value, str) and value.lstrip().startswith("["):
      with contextlib.suppress(ValueError):  # a text that begins so
        listed = json.loads(value)
        if set(map(type, listed)) <= {str}:
          value = listed
    for text in value if isinstance(value, list) else [value]:
      if text is not None and str(text).strip():
        yield text


def _questions(
  groups: Sequence[Group], table: Table, problems: Problems, drop: bool
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
      table.faults.append((group.number, OTHER, f"{what}; {how}"))
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
        table.faults.append((number, OTHER, f"{what}; give each candidate its own id"))
        continue
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
  label = ["label"] if own.form else []
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
