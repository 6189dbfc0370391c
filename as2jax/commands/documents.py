"""The documents that `as2jax index` reads."""

from collections.abc import Mapping, Sequence

from etils import epath

from as2jax.data.datasets import columns as column_names
from as2jax.data.datasets.columns import DOCUMENT_NAMES
from as2jax.data.datasets.fields import text_field
from as2jax.data.datasets.lines import Lines
from as2jax.data.datasets.table import SUFFIXES, open_table
from as2jax.runtime.errors import InputError


def read(file: str, columns: str = "") -> tuple[Sequence[str] | None, Sequence[str]]:
  """Ids (None where the file has none) and texts: a table, or a text a line.

  Args:
    file: a file with a suffix of `table.SUFFIXES`; any other holds a text a line.
    columns: `text=COLUMN,id=COLUMN`, where a table has other names than `columns.DOCUMENT_NAMES`.

  Raises:
    InputError: no such file, one that is wrong or empty, a row without text, or without its id.

  """
  path = epath.Path(file)
  given = column_names.parse(columns, DOCUMENT_NAMES)
  if epath.Path(path.name.lower().removesuffix(".gz")).suffix not in SUFFIXES:
    texts = [line.strip() for _, line in Lines(path) if line.strip()]
    if not texts:
      raise InputError(f"{file} holds no document: give one a line")
    return None, texts
  table = open_table(path, lambda names: column_names.recognised(names, given, DOCUMENT_NAMES))
  rows: list[tuple[str, str]] = []
  empty: list[int] = []
  for record in table:
    fields = column_names.resolve(tuple(record), given, table.error, DOCUMENT_NAMES)
    text = _text(record, fields, table)
    if not text.strip():
      empty.append(table.number)
    rows.append((text_field("candidate_id", record, table, fields.get("id", "id")), text))
  if empty:
    raise table.error(
      f"{len(empty)} of {len(rows)} documents have no text; mend the file", empty[0]
    )
  if not rows:
    raise InputError(f"{file} holds no document: give one a line")
  ids = [row_id for row_id, _ in rows]
  if any(ids) and not all(ids):
    raise InputError(
      f"{file}: some documents have an id and some have none: give it to all or none"
    )
  return (ids if all(ids) else None), [text for _, text in rows]


def _text(record: Mapping, fields: Mapping[str, str], table) -> str:
  if record and "text" not in fields:
    raise table.error(
      f"no text; give it in a column text, candidate or answer, or name the column: --columns "
      f"text=COLUMN ({column_names.listed(tuple(record))})"
    )
  return text_field("text", record, table, fields["text"]) if record else ""
