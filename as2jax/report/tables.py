"""A comparison's figures as tables for papers and notes: Markdown, LaTeX (booktabs), CSV, JSON.

Each figure is a mean with its half-width. † and ‡ mark a difference to the first system with p < .05
and p < .01 by the randomization test over questions (of these models), adjusted by Holm's method where
several systems are compared; * marks one of the methods with p < .05. The best of a metric is bold.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from as2jax.evaluation import compare
from as2jax.runtime.errors import InputError

FORMS = {"markdown": ".md", "latex": ".tex", "csv": ".csv", "json": ".json"}
LEGEND = (
  "± is the 95 % half-width over questions. Against the first system: † p < .05, ‡ p < .01 of these "
  "models (randomization test{holm}); * p < .05 of the methods, seeds counted."
)
ESCAPED = {
  "\\": r"\textbackslash{}",
  "~": r"\textasciitilde{}",
  "^": r"\textasciicircum{}",
  "±": r"$\pm$",
  "–": "--",
  "−": "$-$",
  "†": r"$^{\dagger}$",
  "‡": r"$^{\ddagger}$",
  **{character: f"\\{character}" for character in "&%$#_{}"},
}


def written(rows: Sequence[Mapping[str, Any]], form: str) -> str:
  """The rows of `compare.compare` in one of `FORMS`."""
  if form in ("csv", "json"):
    return compare.as_csv([dict(row) for row in rows]) + "\n" if form == "csv" else _json(rows)
  if any("scope" in row for row in rows):
    raise InputError(f"--format={form} is for systems on one data set; for groups use text or csv")
  return markdown(rows) if form == "markdown" else latex(rows)


def _json(rows: Sequence[Mapping[str, Any]]) -> str:
  return json.dumps(list(map(dict, rows)), indent=2, ensure_ascii=False) + "\n"


def marks(row: Mapping[str, Any]) -> str:
  """† or ‡ of these models, * of the methods; "" of the first system."""
  p = row.get("p_randomization_holm", row.get("p_randomization"))
  methods = row.get("p_methods_holm", row.get("p_methods"))
  of_models = "" if p is None or p >= 0.05 else "‡" if p < 0.01 else "†"
  return of_models + ("*" if methods is not None and methods < 0.05 else "")


def _pivoted(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str], dict]:
  """Systems, metrics, and the row of each pair."""
  systems = list(dict.fromkeys(row["system"] for row in rows))
  metrics = list(dict.fromkeys(row["metric"] for row in rows))
  return systems, metrics, {(row["system"], row["metric"]): row for row in rows}


def _best(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
  """The greatest mean of each metric, of two systems and more."""
  best: dict[str, float] = {}
  for row in rows if len({row["system"] for row in rows}) > 1 else ():
    best[row["metric"]] = max(best.get(row["metric"], row["mean"]), row["mean"])
  return best


def _figure(row: Mapping[str, Any]) -> tuple[str, str]:
  """The mean, and what stands behind it."""
  spread = "" if row["half_width"] is None else f" ± {row['half_width']:.3f}"
  return f"{row['mean']:.3f}", spread


def _said(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
  """What is measured on what, and the legend."""
  where = rows[0]["metric"].partition("[")[2].rstrip("]")
  tested = [row for row in rows if "p_randomization_holm" in row]
  changed = any(row["p_randomization_holm"] != row["p_randomization"] for row in tested)
  holm = ", Holm-adjusted" * changed  # of two systems there is nothing to adjust
  return f"{where}, {rows[0]['questions']} questions", LEGEND.format(holm=holm)


def _short(metric: str) -> str:
  return metric.partition("[")[0].upper()


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
  """A table of Markdown with its legend."""
  systems, metrics, by_cell = _pivoted(rows)
  best, (head, legend) = _best(rows), _said(rows)
  lines = [head, "", "| system | " + " | ".join(map(_short, metrics)) + " |"]
  lines.append("| --- |" + " ---: |" * len(metrics))
  for system in systems:
    cells = []
    for metric in metrics:
      row = by_cell[system, metric]
      mean, spread = _figure(row)
      bold = f"**{mean}**" if row["mean"] == best.get(metric) else mean
      cells.append(f"{bold}{spread}{marks(row)}".replace("*", "\\*").replace("\\*\\*", "**"))
    lines.append(f"| {_plain(system)} | " + " | ".join(cells) + " |")
  return "\n".join([*lines, "", legend.replace("*", "\\*")]) + "\n"


def _plain(text: str) -> str:
  """A text in a cell of Markdown: nothing in it is markup."""
  return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", " ".join(text.split()))


def latex(rows: Sequence[Mapping[str, Any]]) -> str:
  """A table of LaTeX with booktabs."""
  systems, metrics, by_cell = _pivoted(rows)
  best, (head, legend) = _best(rows), _said(rows)
  lines = [["System", *(escaped(_short(metric)) for metric in metrics)]]
  for system in systems:
    cells = [escaped(system)]
    for metric in metrics:
      row = by_cell[system, metric]
      mean, spread = _figure(row)
      bold = rf"\textbf{{{mean}}}" if row["mean"] == best.get(metric) else mean
      cells.append(bold + escaped(spread + marks(row)))
    lines.append(cells)
  return framed(lines, escaped(f"{head}. {legend}"))


def escaped(text: str) -> str:
  """A text as LaTeX sets it."""
  return "".join(ESCAPED.get(character, character) for character in text)


def framed(cells: Sequence[Sequence[str]], caption: str, left: int = 1) -> str:
  """Cells of LaTeX as a table with booktabs, the first row its head, `left` columns set left."""
  columns = "l" * left + "r" * (len(cells[0]) - left)
  lines = [" & ".join(row) + r" \\" for row in cells]
  return "\n".join(
    [
      r"% \usepackage{booktabs}",
      r"\begin{table}",
      r"\centering",
      rf"\begin{{tabular}}{{{columns}}}",
      r"\toprule",
      lines[0],
      r"\midrule",
      *lines[1:],
      r"\bottomrule",
      r"\end{tabular}",
      rf"\caption{{{caption}}}",
      r"\end{table}",
      "",
    ]
  )
