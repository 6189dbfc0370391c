"""Labelled sentences in files too large for memory: one sentence per line, in three formats.

JSON objects, or columns under a header, separated by tabs (a quotation mark is a character like any
other) or, in a .csv file, by commas (quotation marks quote). Fields: question, sentence (or
candidate, or answer) and label (1: answers, 0: does not), and where there are any previous, next
(or successive) and title; question_id, candidate_id, document, doc_id and url are allowed and not
used. Any other field is an error rather than a guess.
"""

import csv
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping

from etils import epath

from as2jax.data.datasets.fields import json_objects, known, label_field, renamed, text_field
from as2jax.data.datasets.grouping import CONTEXT, Row, grouped, make_question
from as2jax.data.datasets.lines import Lines, quoted
from as2jax.data.record import Question

REQUIRED = ("question", "sentence", "label")
UNUSED = ("question_id", "candidate_id", "document", "doc_id", "url")
FIELDS = (*REQUIRED, *CONTEXT, *UNUSED)
ALIASES = {"candidate": "sentence", "answer": "sentence", "successive": "next"}
_LINES = 200  # that a quoted field of a CSV file may span


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
  """The rows of the file."""
  lines = Lines(path)
  content = iter(lines)
  first = next(content)
  if first[1].lstrip().startswith("{"):
    records = (
      renamed(record, FIELDS, ALIASES, lines)
      for record in json_objects(itertools.chain([first], content), lines)
    )
  else:
    split = _comma_cells if lines.path.name.lower().removesuffix(".gz").endswith(".csv") else _cells
    records = _columns(split(itertools.chain([first], content), lines), lines)
  seen = False
  for record in records:
    seen = True
    yield _row(record, lines)
  if not seen:
    raise lines.error("nothing follows the header; get the file again")


def _cells(content: Iterable[tuple[int, str]], lines: Lines) -> Iterator[list[str]]:
  del lines
  for _, line in content:
    yield line.split("\t")


def _comma_cells(content: Iterable[tuple[int, str]], lines: Lines) -> Iterator[list[str]]:
  """The cells of each record: quoted where they hold commas, line breaks or (doubled) quotes."""
  open_lines: list[str] = []
  first = 1
  for number, line in content:
    if not line and not open_lines:
      raise lines.error("the line is empty; remove it")
    first = first if open_lines else number
    open_lines.append(line)
    record = "\n".join(open_lines)
    if record.count('"') % 2:
      if len(open_lines) > _LINES:
        raise lines.error(
          f"a quotation mark is not closed within {_LINES} lines: "
          f"{quoted(open_lines[0])}; close it, or double it inside a cell",
          first,
        )
      continue
    open_lines = []
    try:
      yield next(csv.reader([record], strict=True))
    except csv.Error as error:
      raise lines.error(
        f"not a line of CSV ({error}): {quoted(record)}; quote cells that hold "
        "commas, and double quotation marks inside",
        first,
      ) from error
  if open_lines:
    raise lines.error(
      f"a quotation mark is not closed: {quoted(open_lines[0])}; the file may be cut off", first
    )


def _columns(rows: Iterator[list[str]], lines: Lines) -> Iterator[dict]:
  header = next(rows)
  shown = quoted(", ".join(header), 120)
  if len(header) < len(REQUIRED) or len(set(header)) < len(header):
    raise lines.error(
      f"the first line is {shown}; expected JSON objects, or a header of different names separated "
      f"by tabs (in a .csv file by commas): {known(FIELDS, ALIASES)}"
    )
  names = list(renamed(dict.fromkeys(header, ""), FIELDS, ALIASES, lines))
  for name in REQUIRED:
    if name not in names:
      raise lines.error(f"the header {shown} has no column {name}")
  for cells in rows:
    if len(cells) != len(names):
      raise lines.error(
        f"{len(cells)} columns in {quoted(', '.join(cells))}; expected {len(names)}: "
        f"{', '.join(names)}"
      )
    yield dict(zip(names, cells))


def _row(record: Mapping[str, object], lines: Lines) -> Row:
  texts = {name: text_field(name, record, lines) for name in ("question", "sentence", *CONTEXT)}
  for name in ("question", "sentence"):
    if not texts[name].strip():
      what = "is empty" if name in record else "is missing"
      raise lines.error(f"the field {name} {what}; every line needs a {name}")
  context = (texts[name] for name in CONTEXT)
  label = label_field(record, lines)
  return Row(lines.number, texts["question"], texts["sentence"], label, *context)
