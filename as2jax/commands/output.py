"""What a command prints: text on a terminal, JSON lines elsewhere."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

from typer import Option

Form = Annotated[
  Literal["auto", "text", "json"],
  Option("--format", help="auto: text on a terminal, JSON lines elsewhere"),
]


def text(metavar: str, about: str, *names: str) -> Any:
  """Return the type of an option that is a text."""
  return Annotated[str, Option(*names, metavar=metavar, help=about)]


def texts(metavar: str, about: str, *names: str) -> Any:
  """Return the type of an option that may be given several times."""
  return Annotated[list[str], Option(*names, metavar=metavar, help=about)]


def flag(name: str, about: str) -> Any:
  """Return the type of an option that is given or not."""
  return Annotated[bool, Option(name, help=about)]


def as_json(form: str) -> bool:
  """Return whether rows are printed as JSON lines."""
  return form == "json" or (form == "auto" and not sys.stdout.isatty())


def emit(form: str, rows: Iterable[Mapping[str, Any]], text: Callable[[], str]) -> None:
  """Print rows as JSON lines (what JSON has not, such as a date, is text), or the text."""
  if not as_json(form):
    print(text())
    return
  for row in rows:
    print(json.dumps(row, ensure_ascii=False, default=str))


def columns(rows: Iterable[Iterable[str]]) -> str:
  """Return rows of cells as lines, aligned at the left."""
  cells = [list(map(str, row)) for row in rows]
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  lines = []
  for row in cells:
    lines.append("  ".join(map(str.ljust, row, widths)).rstrip())
  return "\n".join(lines)


def examples(*lines: str) -> str:
  """Return the end of a verb's help: command lines as they are typed."""
  return "\n  ".join(("\b\nExamples:", *lines))


def shown(*lines: str) -> Callable[[Callable], Callable]:
  """Give a verb's function the examples of its help, as the attribute `epilog`."""

  def with_examples(verb: Callable) -> Callable:
    verb.epilog = examples(*lines)
    return verb

  return with_examples
