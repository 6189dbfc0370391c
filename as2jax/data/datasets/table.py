"""The rows of a person's table: tab-separated or CSV files, JSON-lines, Parquet, pandas frames.

A .csv file is read as RFC 4180 says: a cell in quotation marks may hold the delimiter (comma,
semicolon or tab, whichever the header has, or what a first line such as `sep=;` names), line breaks,
and quotation marks doubled. Of tab-separated files both forms are common, those in which a quotation mark is a character like any
other, and those which spreadsheets and pandas write: `is_quoted` tells them apart.
"""

import csv
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from etils import epath

from as2jax.data.datasets.fields import json_objects, parsed
from as2jax.data.datasets.lines import LONGEST, Lines, opened, quoted
from as2jax.runtime.errors import InputError

JSON, PARQUET, TABS, COMMAS = "JSON-lines", "Parquet", "tabs", "CSV"
SUFFIXES = {
  ".jsonl": JSON,
  ".json": JSON,
  ".ndjson": JSON,
  ".parquet": PARQUET,
  ".tsv": TABS,
  ".csv": COMMAS,
}
DELIMITERS = (",", ";", "\t")
NAMED = re.compile(r'"?sep=([^\w\s"]|\t)"?', re.IGNORECASE)  # a line that is there for Excel
log = logging.getLogger(__name__)
Cells = Iterator[tuple[int, list[str]]]


class Table:
  """Rows, each a {column: value}; of JSON-lines each has columns of its own. Iterate once.

  An empty line between others is an empty row; at the end of the file it is none.

  Attributes:
    source: the path, or what a frame is called.
    columns: of the header; None of JSON.
    number: of the row given last, None before the first: its line, or of Parquet, frames and JSON
      arrays its position from 0.

  """

  def __init__(
    self,
    source: str,
    columns: tuple[str, ...] | None,
    rows: Iterable[tuple[int, dict[str, Any]]],
    lines: Lines | None = None,
  ):
    self.source, self.columns = source, columns
    self.number: int | None = None
    self._rows, self._lines = rows, lines

  def __iter__(self) -> Iterator[dict[str, Any]]:
    blank: list[int] = []
    for number, row in self._rows:
      if not row:
        blank.append(number)
        continue
      for self.number in blank:
        yield {}
      blank, self.number = [], number
      yield row

  def place(self, number: int) -> str:
    """A row's number in words, for a message."""
    return f"line {number}" if self._lines else f"row {number}"

  def error(self, problem: str, number: int | None = None) -> InputError:
    """The error for `problem` in row `number` (default: the row given last)."""
    number = self.number if number is None else number
    if self._lines:
      return self._lines.error(problem, number or 1)
    return InputError(f"{self.source}: {f'row {number}: ' if number is not None else ''}{problem}")


def open_table(
  source: Any, recognised: Callable[[Sequence[str]], int], *, bare: tuple[str, ...] = ()
) -> Table:
  """The table in a file, or of a pandas frame.

  Args:
    source: a path (also of a gzip file) or a frame.
    recognised: how many columns of a header are known, which finds the delimiter.
    bare: names of the columns of a tab-separated file without a header; () where it needs one.

  Raises:
    InputError: no such file, no table, a library that is not installed; names file and line. Rows
      that are wrong raise while iterating.

  """
  if hasattr(source, "columns") and hasattr(source, "to_dict"):
    return _frame(source)
  path = epath.Path(source).expanduser()
  suffix = epath.Path(path.name.lower().removesuffix(".gz")).suffix
  form = SUFFIXES.get(suffix)
  if form == PARQUET:
    return _parquet(path)
  first = first_line(path)
  if form == JSON or (form is None and first.lstrip().startswith(("{", "["))):
    array = suffix not in (".jsonl", ".ndjson") and _begins_array(path)
    return _array(path) if array else json_table(path)
  if named := NAMED.fullmatch(first):
    lines = Lines(path, ends=True)
    return delimited(lines, csv_cells(lines, named[1], skipped=1), recognised)
  delimiter = "\t" if form == TABS else _delimiter(first, recognised)
  if delimiter == "\t" and form != COMMAS and not is_quoted(path):
    lines = Lines(path)
    return delimited(lines, tab_cells(lines), recognised, bare)
  lines = Lines(path, ends=True)
  cells = csv_cells(lines, delimiter)
  return delimited(lines, cells, recognised, bare if delimiter == "\t" else ())


def json_table(path: epath.PathLike) -> Table:
  """The table of JSON-lines: an object a row."""
  lines = Lines(path)
  return Table(str(path), None, _objects(lines), lines)


def _begins_array(path: epath.Path) -> bool:
  texts = (line.strip() for _, line in Lines(path, ends=True))
  return next(filter(None, texts), "").startswith("[")


def _array(path: epath.Path) -> Table:
  """The table of one JSON array of objects, as pandas and spreadsheets' add-ons write it."""
  lines = Lines(path, ends=True)
  text = "".join(line for _, line in lines)
  try:
    values = parsed(text)
  except json.JSONDecodeError as error:
    problem = f"not a JSON array: {error.msg}; the file may be cut off"
    raise lines.error(problem, min(error.lineno, lines.number)) from error
  except (ValueError, RecursionError) as error:
    raise InputError(f"{path}: not a JSON array of rows: {error}") from error
  table = Table(str(path), None, enumerate(values))
  for number, value in enumerate(values):
    if not isinstance(value, dict) or not value:
      raise table.error(f"{quoted(json.dumps(value))} is no row; write an object a row", number)
  return table


def tab_cells(lines: Lines) -> Cells:
  """The cells of each line between tabs; a quotation mark is a character like any other."""
  for number, line in lines:
    yield number, line.split("\t")


def csv_cells(lines: Lines, delimiter: str = ",", skipped: int = 0) -> Cells:
  """The cells of each record of a CSV file, with the number of its first line.

  Args:
    lines: of the file, with their ends.
    delimiter: between cells.
    skipped: how many lines stand before the first record.

  """
  rest = itertools.islice(iter(lines), skipped, None)
  # One limit of all readers of the process: raised, and never lowered below what another has set.
  csv.field_size_limit(max(LONGEST, csv.field_size_limit()))
  reader = csv.reader((line for _, line in rest), delimiter=delimiter, strict=True)
  while True:
    first = max(lines.number, skipped) + 1
    try:
      yield first, next(reader)
    except StopIteration:
      return
    except csv.Error as error:
      if "unexpected end" in str(error) or "field limit" in str(error):
        raise lines.error(
          f"a quotation mark is not closed (within {LONGEST:,} characters); close it, or double "
          "it inside a cell; the file may be cut off",
          first,
        ) from error
      raise lines.error(
        f"not a line of CSV ({error}); quote cells that hold {delimiter!r}, and double quotation "
        "marks inside",
        first,
      ) from error


def delimited(
  lines: Lines, cells: Cells, recognised: Callable[[Sequence[str]], int], bare: tuple[str, ...] = ()
) -> Table:
  """The table of cells, whose first row is the header; see `open_table`."""
  number, header = next(cells, (1, []))
  if not any(cell.strip() for cell in header):
    raise lines.error("the first line is empty; begin with a header", number)
  shown = quoted(", ".join(header), 120)
  if not recognised(header):
    if len(header) != len(bare):
      raise lines.error(
        f"the first line is {shown}; expected a header of columns such as question, candidate and "
        "label, or name them: --columns question=COLUMN,candidate=COLUMN",
        number,
      )
    return Table(str(lines.path), bare, _rows(lines, _before(number, header, cells), bare), lines)
  if len(set(header)) < len(header):
    raise lines.error(f"the header {shown} names a column twice; rename one", number)
  return Table(str(lines.path), tuple(header), _rows(lines, cells, header), lines)


def is_quoted(path: epath.PathLike) -> bool:
  """Whether a tab-separated file quotes cells as CSV does.

  It does where each cell that holds a quotation mark stands in quotation marks, with those inside
  doubled, for a reason that a writer has: the cell holds a quotation mark, a tab or a line break; or
  all cells with a comma are quoted (Excel's), or all that are no numbers. But where lines as they
  are have equal numbers of cells, a quotation mark does not make one cell of two lines.
  """
  lines = Lines(path, ends=True)
  text = "".join(line for _, line in lines)
  if '"' not in text:
    return False
  cells = _lexed(text)
  if cells is None:
    return False
  inside = [cell for cell, in_quotes in cells if in_quotes]
  outside = [cell for cell, in_quotes in cells if not in_quotes]
  if any(re.search(r"[\t\r\n]", cell) for cell in inside):
    widths = {line.count("\t") for line in text.removesuffix("\n").split("\n")}
    if len(widths) == 1 and not re.search(r"\r(?!\n)", text):  # which no line may hold
      return False
  for_no_reason = [cell for cell in inside if not re.search(r'["\t\r\n]', cell)]
  if not for_no_reason or not any(re.search(r"[^-+.\d]", cell) for cell in outside):
    return True
  if all("," in cell for cell in for_no_reason) and not any("," in cell for cell in outside):
    return True
  log.warning(
    "%s: some cells are in quotation marks, such as %s, and most are not: quotation marks are "
    "taken as part of the text",
    path,
    quoted(f'"{for_no_reason[0]}"'),
  )
  return False


_CELL = re.compile(r'"((?:[^"]|"")*)"(?=\t|\r?\n|\Z)|([^\t\n"]*)(?=\t|\n|\Z)')


def _lexed(text: str) -> list[tuple[str, bool]] | None:
  """(cell, whether in quotation marks) of all cells; None where a quotation mark is a character."""
  cells, at = [], 0
  while at <= len(text):
    match = _CELL.match(text, at)
    if match is None:
      return None
    inside = match.group(1)
    cells.append((match.group(2).rstrip("\r"), False) if inside is None else (inside, True))
    at = match.end() + (2 if text.startswith("\r\n", match.end()) else 1)
  return cells


def first_line(path: epath.PathLike) -> str:
  """The first line of a file, without its end."""
  for _, line in Lines(path, ends=True):
    return line.rstrip("\r\n")
  raise AssertionError(path)  # an empty file raises in `Lines`


def _delimiter(first: str, recognised: Callable[[Sequence[str]], int]) -> str:
  """What separates a header's cells: the known columns decide, then the number of columns."""

  def fit(delimiter: str) -> tuple[int, bool, int]:
    try:
      header = next(csv.reader([first[: csv.field_size_limit()]], delimiter=delimiter))
    except csv.Error:  # whoever reads the line says what is wrong
      header = []
    return recognised(header), delimiter == "\t" and len(header) > 1, len(header)

  return max(DELIMITERS, key=fit)


def _before(number: int, cells: list[str], rest: Cells) -> Cells:
  yield number, cells
  yield from rest


def _rows(
  lines: Lines, cells: Cells, columns: Sequence[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
  for number, values in cells:
    if not any(value.strip() for value in values):
      yield number, {}
    elif len(values) != len(columns):
      raise lines.error(
        f"{len(values)} columns in {quoted(', '.join(values))}; expected {len(columns)}: "
        f"{', '.join(columns)}",
        number,
      )
    else:
      yield number, dict(zip(columns, values))


def _objects(lines: Lines) -> Iterator[tuple[int, dict[str, Any]]]:
  for number, line in lines:
    row = next(json_objects([(number, line)], lines)) if line.strip() else {}
    if line.strip() and not row:
      raise lines.error("the object is empty; write one row a line")
    yield number, row


def _parquet(path: epath.Path) -> Table:
  try:
    import pyarrow
    from pyarrow import parquet
  except ImportError as error:
    raise InputError(
      f"{path}: Parquet needs pyarrow, which is not installed: pip install 'as2jax[parquet]'"
    ) from error

  def rows() -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    with opened(path) as file:
      for batch in parquet.ParquetFile(file, page_checksum_verification=True).iter_batches():
        for row in batch.to_pylist():
          yield number, row
          number += 1

  try:
    with opened(path) as file:
      columns = tuple(parquet.read_schema(file).names)
    return Table(str(path), columns, list(rows()))
  except (pyarrow.ArrowException, OSError, UnicodeError) as error:
    text = " ".join(str(error).split())
    raise InputError(f"{path} cannot be read as Parquet ({text}); get the file again") from error


def _frame(frame: Any) -> Table:
  columns = tuple(map(str, frame.columns))
  if len(set(columns)) < len(columns):
    raise InputError(f"the frame names a column twice ({', '.join(columns)}); rename one")
  values = [[_missing_to_none(value) for value in frame.iloc[:, i]] for i in range(len(columns))]
  rows = (dict(zip(columns, row)) for row in zip(*values, strict=True))
  return Table("the frame", columns, enumerate(rows))


def _missing_to_none(value: Any) -> Any:
  """NaN, NaT and pandas.NA are missing; a value of numpy's is Python's."""
  if value is None or type(value).__name__ in ("NAType", "NaTType"):
    return None
  if isinstance(value, float) and value != value:
    return None
  return value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
