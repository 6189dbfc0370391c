"""What a command prints: text on a terminal, JSON lines elsewhere."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import typer

Form = Annotated[
  Literal["auto", "text", "json"],
  typer.Option("--format", help="auto: text on a terminal, JSON lines elsewhere"),
]


def as_json(form: str) -> bool:
  """Whether rows are printed as JSON lines."""
  return form == "json" or (form == "auto" and not sys.stdout.isatty())


def emit(form: str, rows: Iterable[Mapping[str, Any]], text: Callable[[], str]) -> None:
  """Prints rows as JSON lines, in which a value that JSON has not, such as a date, is text; or the text."""
  if as_json(form):
    for row in rows:
      print(json.dumps(row, ensure_ascii=False, default=str))
  else:
    print(text())


def columns(rows: Iterable[Iterable[str]]) -> str:
  """Rows of cells as lines, aligned at the left."""
  cells = [list(map(str, row)) for row in rows]
  if not cells:
    return ""
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  return "\n".join(
    "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for row in cells
  )


def examples(*lines: str) -> str:
  """The end of a verb's help: command lines as they are typed."""
  return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def shown(*lines: str) -> Callable[[Callable], Callable]:
  """Gives a verb's function the examples of its help, as the attribute `epilog`."""

  def with_examples(verb: Callable) -> Callable:
    verb.epilog = examples(*lines)
    return verb

  return with_examples
