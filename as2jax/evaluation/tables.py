"""Render tables: rows of cells as text, Markdown, LaTeX (booktabs), CSV or HTML."""

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from as2jax.runtime.errors import InputError

FORMATS = {"text": ".txt", "markdown": ".md", "latex": ".tex", "csv": ".csv", "html": ".html"}
# What LaTeX would not print as it stands.
LATEX = {
  "\\": r"\textbackslash{}",
  "~": r"\textasciitilde{}",
  "^": r"\textasciicircum{}",
  "±": r"$\pm$",
  "·": r"$\cdot$",
  "–": "--",
  "−": "$-$",
  "†": r"$^{\dagger}$",
  "‡": r"$^{\ddagger}$",
  **{character: f"\\{character}" for character in "&%$#_{}"},
}


def render(
  rows: Sequence[Mapping[str, Any]] | Sequence[Sequence[Any]],
  form: str = "text",
  *,
  left: int = 1,
  caption: str = "",
  bold: Collection[tuple[int, int]] = (),
) -> str:
  """Render rows as a table, without a newline at its end.

  >>> print(render([{"run": "bm25", "map": 0.61}, {"run": "x", "map": 0.7}]))
  run    map
  bm25  0.61
  x      0.7

  Args:
    rows: mappings from a column's name to its value, or lists of cells, the first of them the head.
      None is an empty cell.
    form: one of `FORMATS`.
    left: the number of columns, from the first, that are texts and set to the left.
    caption: of LaTeX and HTML.
    bold: (row, column) of cells in bold type, both from 0, the head not counted; not of text and CSV.

  Raises:
    InputError: another format.

  """
  if form not in FORMATS:
    raise InputError(f"{form!r} is no format of tables: use one of {', '.join(FORMATS)}")
  head, cells = _cells(rows)
  if form == "csv":
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *cells])
    return text.getvalue().rstrip("\n")
  texts = [["" if cell is None else str(cell) for cell in row] for row in cells]
  if form == "text":
    return _text([head, *texts], left)
  mark = {"markdown": _markdown_text, "latex": latex_text, "html": escape}[form]
  strong = {"markdown": "**{}**", "latex": r"\textbf{{{}}}", "html": "<b>{}</b>"}[form]
  head = [mark(name) for name in head]
  for i, row in enumerate(texts):
    for j, cell in enumerate(row):
      row[j] = mark(cell)
      if (i, j) in bold:
        row[j] = strong.format(row[j])
  write = {"markdown": _markdown, "latex": _latex, "html": _html}[form]
  return write(head, texts, left, mark(caption))


def _cells(rows: Sequence[Any]) -> tuple[list[str], list[list[Any]]]:
  """Return the head and the body's cells; of mappings, columns in the order of first sight."""
  if rows and isinstance(rows[0], Mapping):
    names = dict.fromkeys(name for row in rows for name in row)
    return list(names), [[row.get(name) for name in names] for row in rows]
  head, *body = rows
  return [str(name) for name in head], [list(row) for row in body]


def _text(rows: list[list[str]], left: int) -> str:
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  lines = []
  for row in rows:
    padded = []
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
      padded.append(cell.ljust(width) if column < left else cell.rjust(width))
    lines.append("  ".join(padded).rstrip())
  return "\n".join(lines)


def _markdown(head: list[str], cells: list[list[str]], left: int, caption: str) -> str:
  del caption
  rule = ["---"] * left + ["---:"] * (len(head) - left)
  return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *cells))


def _markdown_text(text: str) -> str:
  """Return a text in which no character is Markdown's markup."""
  return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", " ".join(text.split()))


def _latex(head: list[str], cells: list[list[str]], left: int, caption: str) -> str:
  lines = [" & ".join(row) + r" \\" for row in (head, *cells)]
  columns = "l" * left + "r" * (len(head) - left)
  begin = [r"% \usepackage{booktabs}", r"\begin{table}", r"\centering"]
  begin += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", lines[0], r"\midrule"]
  end = [r"\bottomrule", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}"]
  return "\n".join([*begin, *lines[1:], *end])


def latex_text(text: str) -> str:
  """Return a text as LaTeX sets it."""
  return "".join(LATEX.get(character, character) for character in text)


def _html(head: list[str], cells: list[list[str]], left: int, caption: str) -> str:
  """Return a `<table>` whose first column heads its rows; columns of numbers have the class `n`."""
  sides = [""] * left + [' class="n"'] * (len(head) - left)
  parts = ["<table>", f"<caption>{caption}</caption>" if caption else "", "<thead><tr>"]
  for name, side in zip(head, sides, strict=True):
    parts.append(f'<th scope="col"{side}>{name}</th>')
  parts.append("</tr></thead><tbody>")
  for row in cells:
    parts.append(f'<tr><th scope="row"{sides[0]}>{row[0]}</th>')
    for cell, side in zip(row[1:], sides[1:], strict=True):
      parts.append(f"<td{side}>{cell}</td>")
    parts.append("</tr>")
  return "".join([*parts, "</tbody></table>"])
