"""The documents that `as2jax index` reads."""

import logging
from collections.abc import Mapping, Sequence

from etils import epath

from as2jax.data import columns as column_names
from as2jax.data.columns import DOCUMENT_NAMES
from as2jax.data.lines import Lines, text_problem
from as2jax.data.tables import SUFFIXES, Table, open_table
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)


def read(
  file: str, columns: str = "", *, drop: bool = False
) -> tuple[Sequence[str] | None, Sequence[str]]:
  """Ids (None where the file has none) and texts: a table, or a text a line.

  Args:
    file: a file with a suffix of `table.SUFFIXES`; any other holds a text a line.
    columns: `text=COLUMN,id=COLUMN`, where a table has other names than `columns.DOCUMENT_NAMES`.
    drop: whether rows without text, and repeated texts, are left out.

  Raises:
    InputError: no such file, one that is wrong or empty, a row without text, or without its id.

  """
  path = epath.Path(file)
  named_columns = column_names.parse(columns, DOCUMENT_NAMES)
  if epath.Path(path.name.lower().removesuffix(".gz")).suffix not in SUFFIXES:
    if columns:
      raise InputError(
        f"--columns={columns}: {file} is read as a text a line; a file with columns ends in "
        f"{', '.join(SUFFIXES)}"
      )
    lines = [("", line.strip()) for _, line in Lines(path) if line.strip()]
    return None, [text for _, text in _distinct(file, lines, len(lines), drop)]
  table = open_table(path, named_columns, DOCUMENT_NAMES)
  rows: list[tuple[str, str]] = []
  seen: dict[str, tuple[int, str]] = {}  # the first row of each id
  empty: list[int] = []
  for number, record in table.rows:
    fields = (
      column_names.resolve(tuple(record), named_columns, table, number, DOCUMENT_NAMES)
      if record
      else {}
    )
    text = _text(record, fields, table, number) if record else ""
    if not text.strip():
      empty.append(number)
      continue
    row_id = "" if (value := record.get(fields.get("id", "id"))) is None else value
    if problem := text_problem("candidate_id", row_id):
      raise table.error(problem, number)
    row_id = str(row_id)
    first, earlier = seen.setdefault(row_id, (number, text))
    if row_id and first != number and not (drop and text == earlier):
      raise table.error(
        f"{table.place(first)} has the id {row_id!r}, too; give each its own", number
      )
    rows.append((row_id, text))
  count = len(rows) + len(empty)
  if empty:
    without = f"{len(empty)} of {count} documents have no text"
    if not drop:
      raise table.error(f"{without}; mend the file, or leave them out: --drop", empty[0])
    log.warning("%s: %s, and are left out", file, without)
  rows = _distinct(file, rows, count, drop)
  ids = [row_id for row_id, _ in rows]
  if any(ids) and not all(ids):
    raise InputError(
      f"{file}: some documents have an id and some have none: give it to all or none"
    )
  return (ids if all(ids) else None), [text for _, text in rows]


def _distinct(
  file: str, rows: list[tuple[str, str]], count: int, drop: bool
) -> list[tuple[str, str]]:
  """The (id, text) of a file of `count` documents, each text once where `drop`; says what repeats."""
  if not rows:
    raise InputError(f"{file} holds no document: give one a line")
  distinct: dict[str, tuple[str, str]] = {}
  for row_id, text in rows:
    distinct.setdefault(text, (row_id, text))
  if len(distinct) < len(rows):
    log.warning(
      "%s: %d of %d documents repeat an earlier text%s",
      file,
      len(rows) - len(distinct),
      count,
      ", which are left out" if drop else "; --drop leaves them out",
    )
  return list(distinct.values()) if drop else rows


def _text(record: Mapping, fields: Mapping[str, str], table: Table, number: int) -> str:
  if "text" not in fields:
    raise table.error(
      f"no text; give it in a column text, candidate or answer, or name the column: --columns "
      f"text=COLUMN ({column_names.listed(tuple(record))})",
      number,
    )
  text = record[fields["text"]]
  if problem := text_problem("text", text):
    raise table.error(problem, number)
  return text or ""
