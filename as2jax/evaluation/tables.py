"""Render tables: rows of cells as text, Markdown, LaTeX (booktabs), CSV or HTML."""

import re
from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

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
STRONG = {"markdown": "**{}**", "latex": r"\textbf{{{}}}", "html": "<b>{}</b>"}


def render(
  rows: Sequence[Any],
  form: str = "text",
  *,
  left: int = 1,
  caption: str = "",
  bold: Collection[tuple[int, int]] = (),
  raw: bool = False,
) -> str:
  """Render rows as a table, without a newline at its end.

  >>> print(render([{"run": "bm25", "map": 0.61}, {"run": "x", "map": 0.7}]))
  run    map
  bm25  0.61
  x      0.7

  Args:
    rows: mappings from a column's name to its value, or (but for CSV) lists of cells, the first of them the head.
    form: one of `FORMATS`; caption: of LaTeX and HTML.
    left: the number of columns, from the first, that are texts and set to the left.
    raw: cells are text of that form already.
    bold: (row, column) of cells in bold type, both from 0, the head not counted; not of text and CSV.

  """
  if form == "csv":
    from as2jax.data.tables import delimited  # here: the help of a command needs none

    return delimited(rows, ",", excel=False).rstrip("\n")
  if not rows or isinstance(rows[0], Mapping):
    names = list(dict.fromkeys(name for row in rows for name in row))
    rows = [names, *([row.get(name) for name in names] for row in rows)]
  mark = {"text": str, "markdown": markdown_text, "latex": latex_text, "html": escape}[form]
  if raw:
    mark = str
  cells = []
  for i, row in enumerate(rows, -1):
    cells.append(["" if cell is None else mark(str(cell)) for cell in row])
    for j in range(len(row)):
      if (i, j) in bold and form in STRONG:
        cells[-1][j] = STRONG[form].format(cells[-1][j])
  if form == "text":
    return _text(cells, left)
  if form == "markdown":
    numbers = len(cells[0]) - left
    cells.insert(1, ["---"] * left + ["---:"] * numbers)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
  return {"latex": _latex, "html": _html}[form](cells, left, mark(caption))


def _text(rows: list[list[str]], left: int) -> str:
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  lines = []
  for row in rows:
    padded = []
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
      padded.append(cell.ljust(width) if column < left else cell.rjust(width))
    lines.append("  ".join(padded).rstrip())
  return "\n".join(lines)


def markdown_text(text: str) -> str:
  """Return a text in which no character is Markdown's markup."""
  return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", " ".join(text.split()))


def latex_text(text: str) -> str:
  """Return a text as LaTeX sets it."""
  return "".join(LATEX.get(character, character) for character in text)


def _latex(cells: list[list[str]], left: int, caption: str) -> str:
  head, *lines = [" & ".join(row) + r" \\" for row in cells]
  columns = "l" * left + "r" * (len(cells[0]) - left)
  begin = [r"% \usepackage{booktabs}", r"\begin{table}", r"\centering"]
  begin += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"]
  end = [r"\bottomrule", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}"]
  return "\n".join([*begin, *lines, *end])


def _html(cells: list[list[str]], left: int, caption: str) -> str:
  """Return a `<table>` whose first column heads its rows; columns of numbers have the class `n`."""
  sides = [""] * left + [' class="n"'] * (len(cells[0]) - left)
  parts = ["<table>", f"<caption>{caption}</caption>" if caption else "", "<thead><tr>"]
  for name, side in zip(cells[0], sides, strict=True):
    parts.append(f'<th scope="col"{side}>{name}</th>')
  parts.append("</tr></thead><tbody>")
  for row in cells[1:]:
    parts.append(f'<tr><th scope="row"{sides[0]}>{row[0]}</th>')
    for cell, side in zip(row[1:], sides[1:], strict=True):
      parts.append(f"<td{side}>{cell}</td>")
    parts.append("</tr>")
  return "".join([*parts, "</tbody></table>"])
