"""The fields of one record of a user's file: JSON objects, texts, labels; errors say where."""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from as2jax.data.datasets.lines import Lines, quoted
from as2jax.runtime.errors import InputError

IDS = ("question_id", "candidate_id")
WORDS = {"0": 0, "0.0": 0, "no": 0, "false": 0, "1": 1, "1.0": 1, "yes": 1, "true": 1}  # of a label


class Place(Protocol):
  """Where a record stands: a file and a line, or a table and a row."""

  def error(self, problem: str, number: int | None = None) -> InputError:
    """The error for `problem`, which names the place."""
    ...


def json_objects(content: Iterable[tuple[int, str]], lines: Lines) -> Iterator[dict]:
  """The JSON object of each line; InputError for anything else."""
  for _, line in content:
    try:
      record = parsed(line)
    except (ValueError, RecursionError) as error:
      raise lines.error(
        f"not a JSON object: {error}: {quoted(line)}; write one object a line"
      ) from error
    if not isinstance(record, dict):
      raise lines.error(f"{quoted(line)} is not a JSON object; write one object a line")
    yield record


def parsed(text: str) -> Any:
  """The value of a JSON text; ValueError also where an object has a field twice."""
  return json.loads(text, object_pairs_hook=_object)


def _object(pairs: Sequence[tuple[str, object]]) -> dict:
  record = dict(pairs)
  if len(record) != len(pairs):
    raise ValueError("a field occurs twice")
  return record


def renamed(
  record: Mapping[str, object], names: Sequence[str], aliases: Mapping[str, str], lines: Place
) -> dict:
  """`record` with aliases resolved; InputError unless every field is one of `names`, and once."""
  result = {}
  for field, value in record.items():
    name = aliases.get(field, field)
    if name not in names:
      near = difflib.get_close_matches(name, names, 1)
      hint = f"did you mean {near[0]!r}? " if near else ""
      raise lines.error(f"{quoted(field)} is not a known field; {hint}{known(names, aliases)}")
    if name in result:
      both = " and ".join(
        f"`{alias}`" for alias in (*aliases, name) if aliases.get(alias, alias) == name
      )
      raise lines.error(f"both {both} are given; keep one")
    result[name] = value
  return result


def known(names: Sequence[str], aliases: Mapping[str, str]) -> str:
  """The fields that there are, for a message."""
  others = "".join(f" (and `{alias}` for `{name}`)" for alias, name in aliases.items())
  return f"known are {', '.join(names)}{others}"


def text_field(name: str, record: Mapping[str, object], place: Place, column: str = "") -> str:
  """The text of a field, "" where it is absent or null; an id may be a number.

  Args:
    column: the record's name for the field; its own where "".

  """
  value = record.get(column or name)
  if value is None:
    return ""
  if name in IDS and isinstance(value, int) and not isinstance(value, bool):
    return str(value)
  shown = column or name
  if not isinstance(value, str):
    text = quoted(json.dumps(value, default=str))
    raise place.error(f"the field {shown} is {text}; expected a text in quotes")
  try:
    value.encode("utf-8")
  except UnicodeEncodeError as error:
    raise place.error(
      f"the field {shown} holds half a surrogate pair at position {error.start + 1}; remove it"
    ) from error
  return value


def worded_label(value: object, place: Place) -> int:
  """The label of a person's file: 0 or 1, 1.0, yes or no, true or false, in any case."""
  if value is None or value == "":
    raise place.error("the field label is missing; every line needs a label, 0 or 1")
  label = WORDS.get(str(value).strip().lower())
  if label is None:
    raise place.error(f"label is {quoted(str(value))}; expected 0 or 1, yes or no, true or false")
  return label


def label_field(record: Mapping[str, object], lines: Place, what: str = "line") -> int:
  """The label, 0 or 1, as a number or as text."""
  value = record.get("label")
  if value is None or value == "":
    raise lines.error(f"the field label is missing; every {what} needs a label, 0 or 1")
  if isinstance(value, bool) or value not in (0, 1, "0", "1") or isinstance(value, float):
    raise lines.error(f"label is {quoted(str(value))}; expected 0 or 1")
  return int(value)
