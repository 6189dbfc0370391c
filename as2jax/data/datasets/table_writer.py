"""Rows into a file that `table` reads again: TSV and CSV (quoted), JSON-lines or array, Parquet."""

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data.datasets.table import COMMAS, JSON, PARQUET, SUFFIXES, TABS
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

DELIMITERS = {TABS: "\t", COMMAS: ","}


def check(target: str, option: str = "--output", *, source: str = "") -> None:
  """Raises InputError where no table can be written to `target`; makes its folder where it can.

  Args:
    source: the file whose rows will be written, which must be another.

  """
  suffix = os.path.splitext(target)[1].lower()
  if suffix not in SUFFIXES:
    raise InputError(f"{option}={target}: name a file that ends in {', '.join(SUFFIXES)}")
  check_place(target, option, source=source)
  if SUFFIXES[suffix] == PARQUET:
    try:
      import pyarrow  # noqa: F401
    except ImportError as error:
      raise InputError(
        f"{option}={target}: Parquet needs pyarrow, which is not installed: "
        "pip install 'as2jax[parquet]'"
      ) from error


def check_place(target: str, option: str, *, source: str) -> None:
  """As `check`, for a file of any form."""
  if _same_file(source, target):
    raise InputError(f"{option}={target} is the file that is read: name another")
  folder = os.path.dirname(os.path.abspath(target))
  if "://" not in target and (
    os.path.isdir(target) or (os.path.exists(folder) and not os.path.isdir(folder))
  ):
    raise InputError(f"{option}={target} cannot be written: name a file in a folder")
  if "://" not in target:
    path = epath.Path(target)
    scratch = path.parent / f".{path.name}.{os.getpid()}"
    try:
      path.parent.mkdir(parents=True, exist_ok=True)
      scratch.write_bytes(b"")
      scratch.unlink()
    except OSError as error:
      raise InputError(f"{option}={target} cannot be written: {error}") from error


def _same_file(source: str, target: str) -> bool:
  try:
    return os.path.samefile(source, target)
  except OSError:  # one of them is not there, or not on a local disk
    return source == target


def write(target: str, rows: Iterable[Mapping[str, Any]], option: str = "--output") -> None:
  """Writes the rows whole, in the form that the file's suffix asks for; see `check`.

  Columns are those of all rows, in the order of first sight. In TSV and CSV a missing value is
  empty, and dicts and lists are JSON text. So are those of a Parquet column, all of which becomes
  text, as does one of several types or of numbers that no type holds.
  """
  rows = list(rows)
  columns = list(dict.fromkeys(name for row in rows for name in row))
  form = SUFFIXES[os.path.splitext(target)[1].lower()]
  try:
    epath.Path(target).parent.mkdir(parents=True, exist_ok=True)
    if form == PARQUET:
      _write_parquet(epath.Path(target), columns, rows)
    elif form == JSON:
      lines = [json.dumps(row, ensure_ascii=False, default=str) for row in rows]
      array = target.lower().endswith(".json")
      text = "[\n" + ",\n".join(lines) + "\n]\n" if array else "".join(f"{x}\n" for x in lines)
      write_whole(epath.Path(target), text)
    else:
      write_whole(epath.Path(target), delimited(columns, rows, DELIMITERS[form]))
  except OSError as error:
    raise InputError(f"{option}={target} cannot be written: {error}") from error


def delimited(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], delimiter: str) -> str:
  """The text of a table with a header: cells are quoted as RFC 4180 says, lines end in LF."""
  lines = [columns, *([row.get(name) for name in columns] for row in rows)]
  return "".join(delimiter.join(_cell(value, delimiter) for value in line) + "\n" for line in lines)


def _cell(value: Any, delimiter: str) -> str:
  text = _text(value)
  if any(mark in text for mark in (delimiter, '"', "\n", "\r")):
    return '"' + text.replace('"', '""') + '"'
  return text


def _text(value: Any) -> str:
  if value is None:
    return ""
  if isinstance(value, (dict, list)):
    return json.dumps(value, ensure_ascii=False, default=str)
  return str(value)


def _texts(values: Iterable[Any]) -> list[str | None]:
  return [None if value is None else _text(value) for value in values]


def _write_parquet(
  path: epath.Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
  import pyarrow
  from pyarrow import parquet

  arrays = {}
  for name in columns:
    values = [row.get(name) for row in rows]
    if any(isinstance(value, (dict, list)) for value in values):
      values = _texts(values)
    try:
      arrays[name] = pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError):  # several types, or beyond 64 bits
      arrays[name] = pyarrow.array(_texts(values))
  content = io.BytesIO()
  parquet.write_table(pyarrow.table(arrays), content)
  scratch = path.parent / f".{path.name}.{os.getpid()}"
  scratch.write_bytes(content.getvalue())
  scratch.replace(path)
