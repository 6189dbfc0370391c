"""Which column of a person's table holds the question, the candidate, the label."""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence

from as2jax.data.datasets.lines import quoted
from as2jax.runtime.errors import InputError

# Field -> the names by which it is known, without case, blanks, hyphens and underscores.
NAMES: dict[str, tuple[str, ...]] = {
  "question": ("question", "query", "questiontext", "querytext"),
  "candidate": (
    "candidate",
    "sentence",
    "answer",
    "text",
    "passage",
    "document",
    "response",
    "candidatetext",
    "answertext",
  ),
  "label": (
    "label",
    "iscorrect",
    "correct",
    "isrelevant",
    "relevant",
    "relevance",
    "isanswer",
    "target",
  ),
  "previous": ("previous", "previoussentence"),
  "next": ("next", "nextsentence", "successive"),
  "title": ("title", "documenttitle"),
  "question_id": ("questionid", "qid", "queryid"),
  "candidate_id": ("candidateid", "sentenceid", "answerid", "passageid", "docno"),
}
DOCUMENT_NAMES = {  # of a table of documents, which `as2jax index` reads
  "text": NAMES["candidate"],
  "id": ("id", *NAMES["candidate_id"]),
}


def parse(
  text: str, names: Mapping[str, Sequence[str]] = NAMES, option: str = "--columns"
) -> dict[str, str]:
  """{field: column} of `question=query,candidate=answer`; InputError for anything else."""
  columns: dict[str, str] = {}
  for item in filter(None, (part.strip() for part in text.split(","))):
    field, equals, column = (part.strip() for part in item.partition("="))
    if not (equals and column):
      raise InputError(f"{option}={text}: {item!r} is no FIELD=COLUMN, such as question=query")
    if field in columns:
      raise InputError(f"{option}={text}: {field} is given twice")
    columns[field] = column
  check(columns, names, f"{option}={text}")
  return columns


def check(columns: Mapping[str, str], names: Mapping[str, Sequence[str]], where: str) -> None:
  """Raises InputError where a mapping names a field that there is not, or one column twice."""
  for field in columns:
    if field not in names:
      near = difflib.get_close_matches(field, names, 1)
      hint = f"did you mean {near[0]!r}? " if near else ""
      raise InputError(f"{where}: there is no field {field!r}; {hint}fields are {', '.join(names)}")
  if len(set(columns.values())) < len(columns):
    raise InputError(f"{where}: one column stands for two fields")


def simple(name: str) -> str:
  """A column's name as `NAMES` has it."""
  return "".join(c for c in name.strip().lower() if c not in " _-")


def recognised(
  columns: Sequence[str], named: Mapping[str, str], names: Mapping[str, Sequence[str]] = NAMES
) -> int:
  """How many of a header's columns are known by name or were named."""
  known = {name for its in names.values() for name in its} | set(map(simple, named.values()))
  return sum(simple(column) in known for column in columns)


def resolve(
  columns: Sequence[str],
  named: Mapping[str, str],
  error: Callable[[str], InputError],
  names: Mapping[str, Sequence[str]] = NAMES,
) -> dict[str, str]:
  """{field: column} of a table.

  A field that was named is that column; else it is the column that has its own name, else the only
  one that has another of its names.

  Args:
    columns: of the table.
    given: {field: column}, which decide before any name.
    error: makes the error for a problem, with the table's place.
    names: the fields, each with its names.

  Raises:
    InputError: a column that was named is not there, or two may be one field.

  """
  resolved: dict[str, str] = {}
  for field, column in named.items():
    same = [c for c in columns if c == column] or [
      c for c in columns if simple(c) == simple(column)
    ]
    if not same:
      raise error(f"there is no column {column!r}, which was named for {field}; {listed(columns)}")
    resolved[field] = same[0]
  taken = set(resolved.values())
  for field, known in names.items():
    if field in resolved:
      continue
    free = [c for c in columns if c not in taken and simple(c) in known]
    exact = [c for c in free if c.strip().lower() == field]
    if len(exact or free) > 1:
      both = " and ".join(f"`{column}`" for column in exact or free)
      raise error(
        f"the columns {both} may both be the {field}; keep one, or name it: --columns {field}={free[0]}"
      )
    if free:
      resolved[field] = (exact or free)[0]
  return resolved


def misspelt(columns: Sequence[str], resolved: Mapping[str, str]) -> Iterator[tuple[str, str]]:
  """(column, field) of columns whose name is nearly that of a field that was not found."""
  absent = [field for field in NAMES if field not in resolved]
  for column in columns:
    near = difflib.get_close_matches(simple(column), map(simple, absent), 1, 0.8)
    for field in absent:
      if near and simple(field) == near[0]:
        yield column, field


def missing(field: str, columns: Sequence[str]) -> str:
  """What to say where no column is `field`."""
  near = difflib.get_close_matches(field, columns, 1)
  hint = f"did you mean {near[0]!r}? " if near else ""
  return (
    f"there is no column {field} ({listed(columns)}); {hint}name it: --columns "
    f"{field}={near[0] if near else 'COLUMN'}"
  )


def listed(columns: Sequence[str]) -> str:
  """The columns that there are, for a message."""
  return f"there are {quoted(', '.join(map(str, columns)), 120)}"
