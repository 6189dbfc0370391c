"""Labelled sentences in files too large for memory: one sentence per line, in three formats.

JSON objects, or columns under a header, separated by tabs (a quotation mark is a character like any
other) or, in a .csv file, by commas (quotation marks quote). Fields: question, sentence (or
candidate, or answer) and label (1: answers, 0: does not), and where there are any previous, next
(or successive) and title; question_id, candidate_id, document, doc_id and url are allowed and not
used. Any other field is an error rather than a guess.
"""

import functools
from collections.abc import Iterator, Mapping

from etils import epath

from as2jax.data.datasets.fields import label_field, renamed, text_field
from as2jax.data.datasets.grouping import CONTEXT, Row, grouped, make_question
from as2jax.data.datasets.lines import Lines
from as2jax.data.datasets.table import (
  Table,
  csv_cells,
  delimited,
  first_line,
  json_table,
  tab_cells,
)
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
  """The rows of the file."""
  table = _opened(epath.Path(path))
  if table.columns is not None:
    names = renamed(dict.fromkeys(table.columns, ""), FIELDS, ALIASES, table)
    for name in REQUIRED:
      if name not in names:
        raise table.error(f"there is no column {name} ({', '.join(table.columns)})")
  seen = False
  for record in table:
    if not record:
      raise table.error("the line is empty; remove it")
    seen = True
    yield _row(renamed(record, FIELDS, ALIASES, table), table)
  if not seen:
    raise table.error("nothing follows the header; get the file again")


def _opened(path: epath.Path) -> Table:
  if first_line(path).lstrip().startswith("{"):
    return json_table(path)
  known_columns = lambda header: len({*FIELDS, *ALIASES}.intersection(header))
  if path.name.lower().removesuffix(".gz").endswith(".csv"):
    lines = Lines(path, ends=True)
    return delimited(lines, csv_cells(lines), known_columns)
  lines = Lines(path)
  return delimited(lines, tab_cells(lines), known_columns)


def _row(record: Mapping[str, object], table: Table) -> Row:
  texts = {name: text_field(name, record, table) for name in ("question", "sentence", *CONTEXT)}
  for name in ("question", "sentence"):
    if not texts[name].strip():
      what = "is empty" if name in record else "is missing"
      raise table.error(f"the field {name} {what}; every line needs a {name}")
  context = (texts[name] for name in CONTEXT)
  label = label_field(record, table)
  return Row(table.number, texts["question"], texts["sentence"], label, *context)
