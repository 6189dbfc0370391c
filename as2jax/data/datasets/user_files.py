"""A person's own questions and candidates: files in the forms of `table`, and pandas frames."""

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data.datasets import columns as column_names
from as2jax.data.datasets.lines import Lines, quoted
from as2jax.data.datasets.table import Table, open_table
from as2jax.data.datasets.user_rows import REQUIRED, Problems, Reading, Row
from as2jax.data.datasets.wikiqa import HEADER, read_wikiqa
from as2jax.data.record import UNKNOWN, Candidate, Question
from as2jax.runtime.errors import InputError

CONTEXT = ("previous", "next", "title")
log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class OwnFile:
  """What a table holds.

  Attributes:
    questions: in the order of first sight.
    others: (question id, candidate id) -> the other columns of its row, by their own names.
    numbers: of the rows of each question's candidates: lines, or positions in a frame.
    problems: what is odd in it.
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
    InputError: anything else; names file, line and value.

  """
  named = column_names.parse(columns) if isinstance(columns, str) else dict(columns)
  column_names.check(named, column_names.NAMES, "columns")
  if not named and _is_wikiqa(source):
    return _of_wikiqa(source, labelled is not False, drop, lenient)
  recognised = lambda names: column_names.recognised(names, named)
  table = open_table(source, recognised, bare=() if labelled is not False else REQUIRED)
  reading = Reading(table, named, labelled)
  groups = reading.groups(drop)
  _tell(table, reading.problems, drop, lenient)
  if not groups:
    what = "nothing is left" if reading.problems.rows else "nothing follows the header"
    raise table.error(f"{what}; add one candidate a line")
  questions = tuple(
    _question(rows, i, table, key) for i, (key, rows) in enumerate(groups.items(), 1)
  )
  _check_ids(questions, groups, table)
  others = {
    (question.id, candidate.id): row.others
    for question, rows in zip(questions, groups.values(), strict=True)
    for candidate, row in zip(question.candidates, rows, strict=True)
  }
  numbers = tuple(tuple(row.line for row in rows) for rows in groups.values())
  return OwnFile(questions, others, reading.problems, bool(reading.labelled), numbers)


def _of_wikiqa(source: Any, labelled: bool, drop: bool, lenient: bool) -> OwnFile:
  """A file in WikiQA's form, whose sentences keep their neighbours, also where they are dropped."""
  line, questions, numbers = 1, [], []
  repeated: list[int] = []
  contradictory: list[int] = []
  for question in read_wikiqa(source, labelled=labelled):
    labels: dict[str, set[int]] = defaultdict(set)
    kept, lines = [], []
    for candidate in question.candidates:
      line += 1
      seen = labels[candidate.text]
      again = candidate.label in seen
      if seen:
        (repeated if again else contradictory).append(line)
      seen.add(candidate.label)
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
  problems = Problems(line - 1, repeated=tuple(repeated), contradictory=tuple(contradictory))
  if str(problems) and not lenient:
    log.warning("%s: %s%s", source, problems, "; repeated ones are left out" * drop)
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


def _check_ids(
  questions: Sequence[Question], groups: Mapping[Any, Sequence[Row]], table: Table
) -> None:
  """Refuses an id of two questions: of two objects, of an object and rows, or a given `q1`."""
  first: dict[str, int] = {}
  for question, (key, rows) in zip(questions, groups.items(), strict=True):
    number = rows[0].line if rows else key[0]
    if question.id in first:
      raise table.error(
        f"question_id {quoted(question.id)} was already on {table.place(first[question.id])}; give "
        "each question its own id (without one they are q1, q2 …), and hold it in one object, or "
        "in rows alone",
        number,
      )
    first[question.id] = number


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
