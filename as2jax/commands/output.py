"""What a command prints: text for people, JSON lines with `--format=json`."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

from typer import Option

from as2jax.evaluation import tables
from as2jax.runtime.errors import InputError
from as2jax.runtime.streams import visible

Form = Annotated[Literal["text", "json"], Option("--format", help="json: a line a row, complete")]

TableForm = Annotated[
  Literal["text", "json", "csv", "markdown", "latex"],
  Option("--format", help="json and csv: every figure of every row"),
]

Excel = Annotated[
  bool,
  Option(
    "--excel",
    help="for Excel: byte order mark, the separator of a file that is read, no cell a formula",
  ),
]


def option(about: str, *names: str, metavar: str | None = None, kind: Any = str) -> Any:
  """Return the type of an option; of the `kind` list[str], it may be given several times."""
  return Annotated[kind, Option(*names, metavar=metavar, help=about)]


def check_excel(target: str) -> None:
  """Raise InputError where `--excel` is for another file than CSV or TSV."""
  if not target.lower().endswith((".csv", ".tsv")):
    raise InputError(f"--excel is for a file that ends in .csv or .tsv, not {target or 'text'}")


def emit(form: str, rows: Iterable[Mapping[str, Any]], text: Callable[[], str]) -> None:
  """Print rows as JSON lines (what JSON has not, such as a date, is text), or the text."""
  if form != "json":
    print(text())
    return
  for row in rows:
    print(json.dumps(row, ensure_ascii=False, default=str))


def marked(text: str, spans: Iterable[tuple[int, int]]) -> None:
  """Print a text whose spans are in colour on a terminal, and elsewhere behind `>> `."""
  coloured, end = sys.stdout.isatty(), 0
  stream = sys.__stdout__ if coloured else sys.stdout  # what a command prints has no colours else
  before, after = ("\x1b[1;32m", "\x1b[0m") if coloured else (">> ", "")
  for first, last in spans:
    stream.write(visible(text[end:first]) + before + visible(text[first:last]) + after)
    end = last
  stream.write(visible(text[end:]) + "\n" * (not text.endswith("\n")))


def columns(rows: Iterable[Iterable[str]]) -> str:
  """Return rows of cells as lines, aligned at the left."""
  cells = list(map(list, rows))
  return tables.render(cells, left=len(cells[0]))


def facts(content: Mapping[str, Any]) -> str:
  """Return nested facts as lines, a fact each; rows of facts are left out."""
  from as2jax.config.overrides import flatten

  flat = flatten(content).items()
  return columns((key.replace("_", " "), fact) for key, fact in flat if not isinstance(fact, list))


def examples(*lines: str) -> str:
  """Return the end of a verb's help: command lines as they are typed."""
  return "\n  ".join(("\b\nExamples:", *lines))
