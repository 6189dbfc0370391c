"""The documents that `as2jax index` reads."""

import logging
from collections.abc import Sequence

from etils import epath

from as2jax.data.lines import Lines, text_problem
from as2jax.data.tables import (
  DOCUMENT_NAMES,
  SUFFIXES,
  Table,
  named_columns,
  open_table,
  resolve_columns,
)
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)


def read(
  file: str, columns: str = "", *, drop: bool = False
) -> tuple[Sequence[str] | None, Sequence[str]]:
  """Read ids (None where the file has none) and texts: a table, or a text a line.

  A file without a suffix of `tables.SUFFIXES` holds a text a line. `columns`, `text=COLUMN,id=COLUMN`,
  names those of a table; with `drop`, rows without text and repeated texts are left out.

  InputError: no such file, one that is wrong or empty, a row without text, or without its id.
  """
  path = epath.Path(file)
  named = named_columns(columns, DOCUMENT_NAMES)
  if epath.Path(path.name.lower().removesuffix(".gz")).suffix in SUFFIXES:
    table = open_table(path)
    rows, empty = _rows(table, named, drop)
  elif columns:
    raise InputError(
      f"--columns={columns}: {file} is read as a text a line; a file with columns ends in "
      f"{', '.join(SUFFIXES)}"
    )
  else:
    rows, empty = [("", line.strip()) for _, line in Lines(path) if line.strip()], []
  count = len(rows) + len(empty)
  if empty:
    without = f"{len(empty)} of {count} documents have no text"
    if not drop:
      raise table.error(f"{without}; mend the file, or leave them out: --drop", empty[0])
    log.warning("%s: %s, and are left out", file, without)
  if not rows:
    raise InputError(f"{file} holds no document: give one a line")
  first: dict[str, str] = {}  # the id of each text
  for row_id, text in rows:
    first.setdefault(text, row_id)
  if repeated := len(rows) - len(first):
    how = ", which are left out" if drop else "; --drop leaves them out"
    log.warning("%s: %d of %d documents repeat an earlier text%s", file, repeated, count, how)
  texts, ids = [text for _, text in rows], [row_id for row_id, _ in rows]
  if drop:
    texts, ids = list(first), list(first.values())
  if any(ids) and not all(ids):
    raise InputError(
      f"{file}: some documents have an id and some have none: give it to all or none"
    )
  return (ids if all(ids) else None), texts


def _rows(
  table: Table, named: dict[str, str], drop: bool
) -> tuple[list[tuple[str, str]], list[int]]:
  """Return (id, text) of the rows of a table, and the numbers of those without text."""
  rows: list[tuple[str, str]] = []
  seen: dict[str, tuple[int, str]] = {}  # the first row of each id
  empty: list[int] = []
  for number, record in table.rows:
    text = row_id = ""
    if record:
      fields = resolve_columns(
        tuple(record), named, table, number, DOCUMENT_NAMES, needed=("text",)
      )
      text, row_id = record[fields["text"]], record.get(fields.get("id", "id"), "")
    row_id = "" if row_id is None else row_id
    if problem := text_problem("text", text) or text_problem("candidate_id", row_id):
      raise table.error(problem, number)
    if not (text or "").strip():
      empty.append(number)
      continue
    first, earlier = seen.setdefault(str(row_id), (number, text))
    if row_id and first != number and not (drop and text == earlier):
      raise table.error(
        f"{table.place(first)} has the id {str(row_id)!r}, too; give each its own", number
      )
    rows.append((str(row_id), text))
  return rows, empty
