"""A user's own questions and candidates: tab-separated columns or JSON-lines."""

import dataclasses
import difflib
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from etils import epath

from as2jax.data.lines import Lines, check_id, quoted
from as2jax.data.record import UNKNOWN, Candidate, Question
from as2jax.data.wikiqa import HEADER, read_wikiqa

REQUIRED = ("question", "candidate")
IDS = ("question_id", "candidate_id")
FIELDS = (*REQUIRED, "label", "previous", "next", "title", *IDS)
ALIASES = {"sentence": "candidate"}
KNOWN = f"known are {', '.join(FIELDS)} (and `sentence` for `candidate`)"
JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
  """One line of the file; "" where a field is absent."""

  line: int
  label: int
  question: str
  candidate: str
  previous: str = ""
  next: str = ""
  title: str = ""
  question_id: str = ""
  candidate_id: str = ""


def read_labelled(path: epath.PathLike) -> tuple[Question, ...]:
  """Reads questions with judged candidates from a user's file.

  One candidate a line, as JSON objects or as columns separated by tabs under a header, with the
  fields question, candidate (or sentence), label (0 or 1) and optionally previous, next, title,
  question_id and candidate_id; or WikiQA's own format. Lines with one question_id, or without ids
  one question text, are one question, wherever they stand; questions come in the order of first
  sight. Without ids, questions are q1, q2 … and their candidates q1-0, q1-1 ….

  Raises:
    InputError: anything else; names file, line and value.
  """
  return _read(path, labelled=True)


def read_unlabelled(path: epath.PathLike) -> tuple[Question, ...]:
  """As `read_labelled`, for ranking: labels are not needed, and ignored where there are any.

  Two columns without a header (question, candidate) will do.
  """
  return _read(path, labelled=False)


def _read(path: epath.PathLike, *, labelled: bool) -> tuple[Question, ...]:
  lines = Lines(path)
  content = _content(lines)
  start = next(content)
  first = start[1]
  if tuple(first.split("\t")) == HEADER:
    return read_wikiqa(path, labelled=labelled)
  suffix = lines.path.suffix.lower()
  if suffix in JSON_SUFFIXES or (suffix != ".tsv" and first.lstrip().startswith("{")):
    records = _json_records(itertools.chain([start], content), lines)
  else:
    records = _column_records(start, content, lines, labelled)
  groups: dict[str, list[Row]] = defaultdict(list)
  earlier: Row | None = None
  for record in records:
    row = _row(record, lines, labelled)
    earlier = earlier or row
    _check_alike(row, earlier, lines)
    group = groups[row.question_id or row.question]
    if group and group[0].question != row.question:
      raise lines.error(
        f"question_id {quoted(row.question_id)} reads {quoted(row.question)} here and "
        f"{quoted(group[0].question)} on line {group[0].line}; give each question its own id"
      )
    group.append(row)
  if not groups:
    raise lines.error("nothing follows the header; add one candidate a line")
  return tuple(_question(rows, i, lines) for i, rows in enumerate(groups.values(), 1))


def _content(lines: Lines) -> Iterator[tuple[int, str]]:
  """The lines, less empty ones at the end of the file; an empty one elsewhere is an error."""
  blank = None
  for number, line in lines:
    if not line.strip():
      blank = blank or number
      continue
    if blank:
      raise lines.error("the line is empty; remove it", blank)
    yield number, line
  if blank == 1:
    raise lines.error("the file holds only empty lines; add one candidate a line", 1)


def _json_records(content: Iterable[tuple[int, str]], lines: Lines) -> Iterator[dict]:
  for _, line in content:
    try:
      record = json.loads(line, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
      raise lines.error(
        f"not a JSON object: {error}: {quoted(line)}; write one object a line"
      ) from error
    if not isinstance(record, dict):
      raise lines.error(f"{quoted(line)} is not a JSON object; write one object a line")
    yield _renamed(record, lines)


def _object(pairs: Sequence[tuple[str, object]]) -> dict:
  record = dict(pairs)
  if len(record) != len(pairs):
    raise ValueError("a field occurs twice")
  return record


def _column_records(
  start: tuple[int, str], rest: Iterable[tuple[int, str]], lines: Lines, labelled: bool
) -> Iterator[dict]:
  first = start[1]
  names = [cell.strip().lower() for cell in first.split("\t")]
  if not {*FIELDS, *ALIASES}.intersection(names):
    if len(names) != 2 or labelled:
      wanted = "question, candidate and label" if labelled else "question and candidate"
      raise lines.error(
        f"the first line is {quoted(first, 120)}; expected a header, tab-separated, with {wanted}"
      )
    names = list(REQUIRED)
    rest = itertools.chain([start], rest)
  elif len(set(names)) != len(names):
    raise lines.error(f"the header {quoted(first, 120)} names a column twice; rename one")
  names = list(_renamed({name: "" for name in names}, lines))
  for name in (*REQUIRED, *["label"] * labelled):
    if name not in names:
      raise lines.error(f"the header {quoted(first, 120)} has no column {name}; {KNOWN}")
  for _, line in rest:
    cells = line.split("\t")
    if len(cells) != len(names):
      raise lines.error(
        f"{len(cells)} columns in {quoted(line)}; expected {len(names)}: {', '.join(names)}"
      )
    yield dict(zip(names, cells))


def _renamed(record: Mapping[str, object], lines: Lines) -> dict:
  """`record` with aliases resolved; every field known and named once."""
  renamed = {}
  for given, value in record.items():
    name = ALIASES.get(given, given)
    if name not in FIELDS:
      near = difflib.get_close_matches(name, FIELDS, 1)
      hint = f"did you mean {near[0]!r}? " if near else ""
      raise lines.error(f"{quoted(given)} is not a known field; {hint}{KNOWN}")
    if name in renamed:
      raise lines.error("both `sentence` and `candidate` are given; keep one")
    renamed[name] = value
  return renamed


def _row(record: Mapping[str, object], lines: Lines, labelled: bool) -> Row:
  fields = {name: _text(name, record, lines) for name in FIELDS if name != "label"}
  for name in REQUIRED:
    if not fields[name].strip():
      what = "is empty" if name in record else "is missing"
      raise lines.error(f"the field {name} {what}; every line needs a {name}")
  for name in IDS:
    if fields[name]:
      check_id(fields[name], name, lines)
  label = UNKNOWN
  if labelled:
    value = record.get("label")
    if value is None or value == "":
      raise lines.error("the field label is missing; every line needs a label, 0 or 1")
    if isinstance(value, bool) or value not in (0, 1, "0", "1") or isinstance(value, float):
      raise lines.error(f"label is {quoted(str(value))}; expected 0 or 1")
    label = int(value)
  return Row(lines.number, label, **fields)


def _text(name: str, record: Mapping[str, object], lines: Lines) -> str:
  value = record.get(name)
  if value is None:
    return ""
  if name in IDS and isinstance(value, int) and not isinstance(value, bool):
    return str(value)
  if not isinstance(value, str):
    raise lines.error(f"the field {name} is {quoted(json.dumps(value))}; expected a text in quotes")
  try:
    value.encode("utf-8")
  except UnicodeEncodeError as error:
    raise lines.error(
      f"the field {name} holds half a surrogate pair at position {error.start + 1}; remove it"
    ) from error
  return value


def _check_alike(row: Row, earlier: Row, lines: Lines) -> None:
  for name in IDS:
    if bool(getattr(row, name)) != bool(getattr(earlier, name)):
      here, there = ("has", "has none") if getattr(row, name) else ("has no", "has one")
      raise lines.error(
        f"this line {here} {name}, line {earlier.line} {there}; give it on all lines or on none"
      )


def _question(rows: Sequence[Row], number: int, lines: Lines) -> Question:
  question_id = rows[0].question_id or f"q{number}"
  judged: dict[str, set[int]] = defaultdict(set)
  for row in rows:
    judged[row.candidate].add(row.label)
  candidates: dict[str, Candidate] = {}
  for i, row in enumerate(rows):
    candidate_id = row.candidate_id or f"{question_id}-{i}"
    if candidate_id in candidates:
      raise lines.error(
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
