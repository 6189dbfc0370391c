"""Make the page of many runs: a sweep's points or a paper's table, and who looked at test."""

from collections.abc import Sequence

from as2jax.report import make as pages
from as2jax.report import plots
from as2jax.report.plots import Mark as Mark


def make(
  title: str,
  subtitle: str,
  *,
  result: Sequence[str],
  marks: Sequence[Mark],
  axis: str,
  cells: Sequence[Sequence[str]],
  left: int,
  ledger: Sequence[Sequence[str]],
) -> str:
  """Return the page's text.

  Args:
    result: what was chosen, on what, and what it came to on test.
    marks: of the figure; axis: what it shows.
    cells: of the table, the first row its head; `left` columns are texts.
    ledger: (run, how often test was evaluated, when it was last) as cells, the first row the head.

  """
  figure = plots.intervals({"": marks}, axis)
  return pages.page(
    "many.html.j2",
    title=title,
    subtitle=subtitle,
    result=result,
    figure=figure if figure.shapes else None,
    cells=cells,
    left=left,
    ledger=ledger if len(ledger) > 1 else [],
  )
