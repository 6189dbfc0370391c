"""Labelled sentences in files too large for memory: one sentence per line, in three formats.

JSON objects, or columns under a header, separated by tabs (a quotation mark is a character like any
other) or, in a .csv file, by commas (quotation marks quote). Fields: question, sentence (or
candidate, or answer) and label (1: answers, 0: does not), and where there are any previous, next
(or successive) and title; question_id, candidate_id, document, doc_id and url are allowed and not
used. Any other field is an error rather than a guess.
"""

import csv
import functools
from collections.abc import Iterator, Mapping

from etils import epath

from as2jax.data.datasets.grouping import CONTEXT, Row, grouped, make_question
from as2jax.data.lines import LONGEST, Lines, json_objects, label_field, renamed, text_field
from as2jax.data.record import Question

REQUIRED = ("question", "sentence", "label")
UNUSED = ("question_id", "candidate_id", "document", "doc_id", "url")
FIELDS = (*REQUIRED, *CONTEXT, *UNUSED)
ALIASES = {"candidate": "sentence", "answer": "sentence", "successive": "next"}


def read_judged(path: epath.PathLike) -> tuple[Question, ...]:
  """As `iterate_judged`, all at once: for small files."""
  return tuple(iterate_judged(path))


def iterate_judged(path: epath.PathLike) -> Iterator[Question]:
  """The questions of a file, of which memory holds one at a time (see `grouping.grouped`).

  Questions are told apart by their text and numbered as in `asnq.iterate_asnq`.

  Raises:
    InputError: anything but such a file; names file, line and value.

  """
  rows = functools.partial(iterate_rows, path)
  for number, group in enumerate(grouped(rows, str(path)), 1):
    yield make_question(f"q{number}", group, positive=1)


def iterate_rows(path: epath.PathLike) -> Iterator[Row]:
  """Yield the rows of the file."""
  path = epath.Path(path)
  is_csv = path.name.lower().removesuffix(".gz").endswith(".csv")
  lines = Lines(path, ends=is_csv)
  count = 0
  for count, record in enumerate(_records(lines, is_csv), 1):
    yield _row(renamed(record, FIELDS, ALIASES, lines), lines)
  if not count:
    raise lines.error("nothing follows the header; get the file again")


def _records(lines: Lines, is_csv: bool) -> Iterator[Mapping[str, object]]:
  """Yield each JSON object, or the cells of each record by the names in the header."""
  header = None
  for cells in _cells(lines, is_csv):
    if isinstance(cells, dict):
      yield cells
    elif not any(cell.strip() for cell in cells):
      raise lines.error("the line is empty; remove it")
    elif header is None:
      header = cells
      names = renamed(dict.fromkeys(header, ""), FIELDS, ALIASES, lines)
      for name in (*REQUIRED, *header):
        if name in REQUIRED and name not in names:
          raise lines.error(f"there is no column {name} ({', '.join(header)})")
        if header.count(name) > 1:
          raise lines.error(f"the header names {name} twice; rename one")
    elif len(cells) != len(header):
      names = ", ".join(header)
      raise lines.error(f"{len(cells)} columns in {cells}; expected {len(header)}: {names}")
    else:
      yield dict(zip(header, cells))


def _cells(lines: Lines, is_csv: bool) -> Iterator[list[str] | dict]:
  """Yield a JSON object or the cells of a header or row."""
  if not is_csv:
    objects = False
    for number, line in lines.filled("sentence"):
      objects = objects or (number == 1 and line.lstrip().startswith("{"))
      yield next(json_objects([(number, line)], lines)) if objects else line.split("\t")
    return
  csv.field_size_limit(max(LONGEST, csv.field_size_limit()))
  reader = csv.reader((line for _, line in lines), strict=True)
  while True:
    first = lines.number + 1
    try:
      cells = next(reader)
    except StopIteration:
      return
    except csv.Error as error:
      problem = (
        f"not a line of CSV ({error}); close quotation marks, and double those inside a cell"
      )
      raise lines.error(problem, first) from error
    yield cells


def _row(record: Mapping[str, object], lines: Lines) -> Row:
  texts = {name: text_field(name, record, lines) for name in ("question", "sentence", *CONTEXT)}
  for name in ("question", "sentence"):
    if not texts[name].strip():
      what = "is empty" if name in record else "is missing"
      raise lines.error(f"the field {name} {what}; every line needs a {name}")
  context = (texts[name] for name in CONTEXT)
  label = label_field(record, lines)
  return Row(lines.number, texts["question"], texts["sentence"], label, *context)
