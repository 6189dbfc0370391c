"""Pieces of HTML. Every text goes through `text`, so that none of it is read as markup."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def text(value: object) -> str:
  """A text as HTML shows it, in an element or an attribute."""
  return escape(str(value), quote=True)


def data(value: Any) -> str:
  """JSON that may stand in a script element: nothing in it ends the element."""
  written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
  for character in "<>&\u2028\u2029":
    written = written.replace(character, f"\\u{ord(character):04x}")
  return written


def section(id: str, title: str, *parts: str, lead: str = "") -> str:
  """A section of the page with its heading; "" where it has no parts."""
  inner = "".join(parts)
  if not inner:
    return ""
  said = f'<p class="lead">{text(lead)}</p>' if lead else ""
  return (
    f'<section id="{id}" aria-labelledby="{id}-h"><h2 id="{id}-h">{text(title)}</h2>{said}{inner}'
    "</section>"
  )


def figure(svg: str, caption: str = "", name: str = "") -> str:
  """A picture with its caption; `name` is that of its files."""
  below = f"<figcaption>{text(caption)}</figcaption>" if caption else ""
  named = f' data-figure="{text(name)}"' if name else ""
  return f'<figure{named}><div class="scroll" tabindex="0">{svg}</div>{below}</figure>'


def items(lines: Iterable[str], kind: str = "notes") -> str:
  """A list of sentences; "" where there are none."""
  inner = "".join(f"<li>{text(line)}</li>" for line in lines)
  return f'<ul class="{kind}">{inner}</ul>' if inner else ""


def note(sentence: str) -> str:
  """A sentence that says what is not shown, and why; or how to read what is."""
  return f'<p class="note">{text(sentence)}</p>'


def table(
  head: Sequence[str],
  rows: Iterable[Sequence[Any]],
  *,
  left: int = 1,
  caption: str = "",
  values: Sequence[Sequence[float | None]] | None = None,
) -> str:
  """A table whose first column heads its rows.

  Args:
    left: so many columns are texts; the others are numbers, set to the right.
    values: the numbers behind the cells, written into `data-value` in full; None for no number.

  """
  side = lambda n: "" if n < left else ' class="n"'
  top = "".join(f'<th scope="col"{side(n)}>{text(cell)}</th>' for n, cell in enumerate(head))
  body = []
  for r, row in enumerate(rows):
    cells = []
    for n, cell in enumerate(row):
      value = values[r][n] if values is not None else None
      exact = "" if value is None else f' data-value="{value!r}"'
      tag, scope = ("th", ' scope="row"') if n == 0 else ("td", "")
      cells.append(f"<{tag}{scope}{side(n)}{exact}>{text(cell)}</{tag}>")
    body.append(f"<tr>{''.join(cells)}</tr>")
  said = f"<caption>{text(caption)}</caption>" if caption else ""
  return (
    f'<div class="scroll" tabindex="0"><table>{said}<thead><tr>{top}</tr></thead>'
    f"<tbody>{''.join(body)}</tbody></table></div>"
  )


def details(summary: str, inner: str, *, opened: bool = False) -> str:
  """What is shown when a reader opens it."""
  state = " open" if opened else ""
  return f"<details{state}><summary>{text(summary)}</summary>{inner}</details>"
