"""A user's own questions and candidates: tab-separated columns or JSON-lines."""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from etils import epath

from as2jax.data.datasets.fields import IDS, json_objects, known, label_field, renamed, text_field
from as2jax.data.datasets.lines import Lines, check_id, quoted
from as2jax.data.datasets.tanda_json import read_tanda_json
from as2jax.data.datasets.wikiqa import HEADER, read_wikiqa
from as2jax.data.record import UNKNOWN, Candidate, Question
from as2jax.runtime.errors import InputError

REQUIRED = ("question", "candidate")
FIELDS = (*REQUIRED, "label", "previous", "next", "title", *IDS)
ALIASES = {"sentence": "candidate"}
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


def load(
  paths: Mapping[str, str], read: Callable[[epath.Path], tuple[Question, ...]], *, name: str
) -> dict[str, tuple[Question, ...]]:
  """Reads a user's own data set: split (train, dev, test) -> path; `name` is its data.name.

  A split with the path "" is left out.

  Raises:
    InputError: no path at all, or a file is wrong.

  """
  given = {split: path for split, path in paths.items() if path}
  if not given:
    raise InputError(
      f"data.name = {name!r} needs the paths of your files: give --config.data."
      + ", --config.data.".join(paths)
    )
  return {split: read(epath.Path(path).expanduser()) for split, path in given.items()}


def read_labelled(path: epath.PathLike) -> tuple[Question, ...]:
  """Reads questions with judged candidates from a user's file.

  One candidate a line, as JSON objects or as columns separated by tabs under a header, with the
  fields question, candidate (or sentence), label (0 or 1) and optionally previous, next, title,
  question_id and candidate_id; or TANDA's JSON-lines, one question a line with its `candidates`; or
  WikiQA's own format. gzip files are unpacked. Lines with one question_id, or without ids
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
  content = lines.filled("candidate")
  start = next(content)
  first = start[1]
  if tuple(first.split("\t")) == HEADER:
    return read_wikiqa(path, labelled=labelled)
  suffix = lines.path.suffix.lower()
  if suffix in JSON_SUFFIXES or (suffix != ".tsv" and first.lstrip().startswith("{")):
    objects = json_objects(itertools.chain([start], content), lines)
    record = next(objects)
    if "candidates" in record:
      return read_tanda_json(path, labelled=labelled)
    objects = itertools.chain([record], objects)
    records = (renamed(record, FIELDS, ALIASES, lines) for record in objects)
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
  names = list(renamed({name: "" for name in names}, FIELDS, ALIASES, lines))
  for name in (*REQUIRED, *["label"] * labelled):
    if name not in names:
      raise lines.error(
        f"the header {quoted(first, 120)} has no column {name}; {known(FIELDS, ALIASES)}"
      )
  for _, line in rest:
    cells = line.split("\t")
    if len(cells) != len(names):
      raise lines.error(
        f"{len(cells)} columns in {quoted(line)}; expected {len(names)}: {', '.join(names)}"
      )
    yield dict(zip(names, cells))


def _row(record: Mapping[str, object], lines: Lines, labelled: bool) -> Row:
  fields = {name: text_field(name, record, lines) for name in FIELDS if name != "label"}
  for name in REQUIRED:
    if not fields[name].strip():
      what = "is empty" if name in record else "is missing"
      raise lines.error(f"the field {name} {what}; every line needs a {name}")
  for name in IDS:
    if fields[name]:
      check_id(fields[name], name, lines)
  label = label_field(record, lines) if labelled else UNKNOWN
  return Row(lines.number, label, **fields)


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
