"""The column of a table that holds the question, the candidate, the label, by common names or a mapping."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from as2jax.data.lines import quoted
from as2jax.runtime.errors import InputError

# Field -> the column names by which it is known, without case, blanks, hyphens and underscores.
NAMES: dict[str, tuple[str, ...]] = {
  "question": ("question", "query", "questiontext", "querytext"),
  "candidate": (
    "candidate", "sentence", "answer", "text", "passage", "document", "response", "candidatetext",
    "answertext",
  ),
  "label": (
    "label", "iscorrect", "correct", "isrelevant", "relevant", "relevance", "isanswer", "target",
  ),
  "previous": ("previous", "previoussentence"),
  "next": ("next", "nextsentence", "successive"),
  "title": ("title", "documenttitle"),
  "question_id": ("questionid", "qid", "queryid"),
  "candidate_id": ("candidateid", "sentenceid", "answerid", "passageid", "docno"),
}  # fmt: skip
DOCUMENT_NAMES = {  # of a table of documents, which `as2jax index` reads
  "text": NAMES["candidate"],
  "id": ("id", *NAMES["candidate_id"]),
}
Fields = Mapping[str, Sequence[str]]  # field -> its column names, as in `NAMES`


def parse(columns: Mapping[str, str] | str, names: Fields = NAMES) -> dict[str, str]:
  """Return {field: column} of a mapping, or of a text `question=query,candidate=answer`.

  Raises InputError: another text, a field that there is not, or one column for two fields.
  """
  where = f"columns {columns!r}"
  if isinstance(columns, str):
    pairs = [item.partition("=")[::2] for item in columns.split(",") if item.strip()]
  else:
    pairs = list(columns.items())
  named: dict[str, str] = {}
  for field, column in pairs:
    field, column = field.strip(), column.strip()
    if field not in names or not column:
      near = difflib.get_close_matches(field, names, 1)
      hint = f"did you mean {near[0]!r}? " if near else ""
      raise InputError(
        f"{where}: {field!r} with {column!r} is no FIELD=COLUMN; {hint}fields are {', '.join(names)}"
      )
    if field in named or column in named.values():
      raise InputError(f"{where}: the field {field} or the column {column} is given twice")
    named[field] = column
  return named


def simple(name: str) -> str:
  """Write a column's name as `NAMES` has it."""
  return re.sub("[ _-]", "", name.strip().lower())


def resolve(
  columns: Sequence[str],
  named: Mapping[str, str],
  table: Any,
  number: int | None = None,
  names: Fields = NAMES,
  needed: Sequence[str] = (),
) -> dict[str, str]:
  """Find the column of each field: {field: column}.

  A field that was named is that column; else it is the column that has its own name, else the only
  one that has another of its names.

  Raises InputError: a column that was named or is `needed` is not there, or two may be one field;
  names row `number`.
  """
  there = f"there are {quoted(', '.join(map(str, columns)), 120)}"
  resolved: dict[str, str] = {}
  for field, column in named.items():
    same = [c for c in columns if simple(c) == simple(column)]
    if not same:
      problem = f"there is no column {column!r}, which was named for {field}; {there}"
      raise table.error(problem, number)
    resolved[field] = column if column in same else same[0]
  for field, known in names.items():
    if field in resolved:
      continue
    found = [c for c in columns if simple(c) in known and c not in resolved.values()]
    exact = [c for c in found if c.strip().lower() == field]
    if len(exact or found) > 1:
      shown = " and ".join(f"`{column}`" for column in found)
      problem = f"the columns {shown} may both be the {field}"
      raise table.error(f"{problem}; keep one, or name it: --columns {field}={found[0]}", number)
    if found:
      resolved[field] = (exact or found)[0]
  for field in needed:
    if field not in resolved:
      near, hint = difflib.get_close_matches(field, columns, 1), ""
      if near:
        hint = f"did you mean {near[0]!r}? "
      how = f"{hint}name it: --columns {field}={(near or ['COLUMN'])[0]}"
      raise table.error(f"there is no column {field} ({there}); {how}", number)
  return resolved
