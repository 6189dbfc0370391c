"""The documents that `as2jax index` reads."""

import logging
from collections.abc import Iterator, Sequence

from etils import epath

from as2jax.data.lines import Lines, text_problem
from as2jax.data.tables import (
  DOCUMENT_NAMES,
  SUFFIXES,
  Table,
  is_hub,
  named_columns,
  open_table,
  resolve_columns,
  suffix_of,
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
  if suffix_of(path) in SUFFIXES or is_hub(file):
    table = open_table(path)
    table.refuse()
    rows = _rows(table, named)
  elif columns:
    raise InputError(
      f"--columns={columns}: {file} is read as a text a line; a file with columns ends in "
      f"{', '.join(SUFFIXES)}"
    )
  else:
    rows = ((number, "", line.strip()) for number, line in Lines(path) if line.strip())
  kept: list[tuple[str, str]] = []
  texts: set[str] = set()
  by_id: dict[str, tuple[int, str]] = {}  # the first row of each id
  empty, repeated = [], 0
  for number, row_id, text in rows:
    if not text.strip():
      empty.append(number)
      continue
    first, earlier = by_id.setdefault(row_id, (number, text))
    if row_id and first != number and not (drop and text == earlier):
      raise InputError(
        f"{file}:{number}: line {first} has the id {row_id!r}, too; give each its own"
      )
    if text in texts:
      repeated += 1
    if not (drop and text in texts):
      kept.append((row_id, text))
    texts.add(text)
  if empty and not drop:
    raise InputError(
      f"{file}:{empty[0]}: {len(empty)} document(s) have no text; mend the file, or leave them out: --drop"
    )
  if not kept:
    raise InputError(f"{file} holds no document: give one a line")
  if empty or repeated:
    how = "which are left out" if drop else "--drop leaves them out"
    log.warning(
      "%s: %d document(s) have no text, %d repeat one: %s", file, len(empty), repeated, how
    )
  ids = [row_id for row_id, _ in kept]
  if any(ids) and not all(ids):
    raise InputError(
      f"{file}: some documents have an id and some have none: give it to all or none"
    )
  return (ids if all(ids) else None), [text for _, text in kept]


def _rows(table: Table, named: dict[str, str]) -> Iterator[tuple[int, str, str]]:
  """Yield number, id and text of the rows of a table."""
  for number, record in table.rows:
    text = row_id = None
    if record:
      fields = resolve_columns(
        tuple(record), named, table, number, DOCUMENT_NAMES, needed=("text",)
      )
      text, row_id = record[fields["text"]], record.get(fields.get("id", "id"))
    if problem := text_problem("text", text) or text_problem("candidate_id", row_id):
      raise table.error(problem, number)
    yield number, "" if row_id is None else str(row_id), text or ""
