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


def parse(text: str, names: Fields = NAMES, option: str = "--columns") -> dict[str, str]:
  """Parse `question=query,candidate=answer` to {field: column}; InputError for anything else."""
  columns: dict[str, str] = {}
  for item in text.split(","):
    field, _, column = (part.strip() for part in item.partition("="))
    if not item.strip():
      continue
    if not column:
      raise InputError(f"{option}={text}: {item!r} is no FIELD=COLUMN, such as question=query")
    if field in columns:
      raise InputError(f"{option}={text}: {field} is given twice")
    columns[field] = column
  check(columns, f"{option}={text}", names)
  return columns


def check(columns: Mapping[str, str], where: str, names: Fields = NAMES) -> None:
  """Raise InputError where a mapping names a field that there is not, or one column twice."""
  for field in columns:
    if field not in names:
      near = difflib.get_close_matches(field, names, 1)
      hint = f"did you mean {near[0]!r}? " if near else ""
      raise InputError(f"{where}: there is no field {field!r}; {hint}fields are {', '.join(names)}")
  if len(set(columns.values())) < len(columns):
    raise InputError(f"{where}: one column stands for two fields")


def simple(name: str) -> str:
  """Write a column's name as `NAMES` has it."""
  return re.sub("[ _-]", "", name.strip().lower())


def recognised(columns: Sequence[str], named: Mapping[str, str], names: Fields = NAMES) -> int:
  """Count the columns that are known by name or were named."""
  known = set(map(simple, named.values())).union(*names.values())
  return sum(simple(column) in known for column in columns)


def resolve(
  columns: Sequence[str], named: Mapping[str, str], table: Any, number: int | None = None,
  names: Fields = NAMES,
) -> dict[str, str]:  # fmt: skip
  """Find the column of each field: {field: column}.

  A field that was named is that column; else it is the column that has its own name, else the only
  one that has another of its names.

  Raises:
    InputError: a column that was named is not there, or two may be one field; names row `number`.

  """
  resolved: dict[str, str] = {}
  for field, column in named.items():
    same = [c for c in columns if simple(c) == simple(column)]
    if not same:
      problem = f"there is no column {column!r}, which was named for {field}; {listed(columns)}"
      raise table.error(problem, number)
    resolved[field] = column if column in same else same[0]
  taken = set(resolved.values())
  for field, known in names.items():
    free = [c for c in columns if c not in taken and simple(c) in known]
    exact = [c for c in free if c.strip().lower() == field]
    found = exact or free
    if field in resolved or not found:
      continue
    if len(found) > 1:
      raise table.error(
        f"the columns {' and '.join(f'`{c}`' for c in found)} may both be the {field}; keep one, or "
        f"name it: --columns {field}={free[0]}",
        number,
      )
    resolved[field] = found[0]
  return resolved


def missing(field: str, columns: Sequence[str]) -> str:
  """Say that no column is `field`, and which one may be meant."""
  near = difflib.get_close_matches(field, columns, 1)
  hint = f"did you mean {near[0]!r}? " if near else ""
  named = near[0] if near else "COLUMN"
  return f"there is no column {field} ({listed(columns)}); {hint}name it: --columns {field}={named}"


def listed(columns: Sequence[str]) -> str:
  """List the columns that there are, for a message."""
  return f"there are {quoted(', '.join(map(str, columns)), 120)}"


def misspelt(column: str, resolved: Mapping[str, str]) -> str:
  """Name the field that was not found and whose name is nearly `column`, "" where there is none."""
  absent = {simple(field): field for field in NAMES if field not in resolved}
  near = difflib.get_close_matches(simple(column), absent, 1, 0.8)
  return absent[near[0]] if near else ""
