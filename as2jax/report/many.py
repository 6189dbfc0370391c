"""The page of many runs: a sweep's points or a paper's table, the choice, and who looked at test."""

from collections.abc import Sequence
from typing import NamedTuple

from as2jax.report import axes, markup, page
from as2jax.report.drawing import Drawing

ROW, WIDTH, LEFT, RIGHT = 22, 860, 330, 190


class Mark(NamedTuple):
  """A line of the figure.

  Attributes:
    label: of the point, or of the row and column.
    mean, half_width: ours, None where there is none.
    published: a published figure, drawn as a hollow mark, None where there is none.
    chosen: whether it is the point that the sweep chose.

  """

  label: str
  mean: float | None
  half_width: float | None = None
  published: float | None = None
  chosen: bool = False


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
  notes: Sequence[str] = (),
) -> str:
  """The page's text.

  Args:
    result: what was chosen, on what, and what it came to on test; or what the table says in a line.
    marks: of the figure; axis: what it shows.
    cells: of the table, the first row its head; `left` columns are texts.
    ledger: (run, how often test was evaluated, when it was last) as cells, the first row the head.
    notes: what else is to be known.

  """
  drawn = drawing(marks, axis)
  picture = markup.figure(drawn.svg(), name="points") if drawn.shapes else ""
  counted = markup.table(ledger[0], ledger[1:], left=2) if len(ledger) > 1 else ""
  verdict = "".join(f'<p class="verdict">{markup.text(line)}</p>' for line in result[:1])
  return page.page(
    title,
    subtitle,
    [
      markup.section("verdict", "Result", verdict, markup.items(result[1:])),
      markup.section(
        "points", "All of them", picture, markup.table(cells[0], cells[1:], left=left)
      ),
      markup.section("notes", "Notes", markup.items(notes)),
      markup.section("ledger", "Evaluations of test", counted),
    ],
  )


def drawing(marks: Sequence[Mark], axis: str) -> Drawing:
  """A line a mark: ours with its half-width, published figures hollow; nothing without figures."""
  figure = Drawing(WIDTH, 16 + ROW * len(marks) + 36, axis, _said(marks))
  ends = [mark.published for mark in marks if mark.published is not None]
  for mark in marks:
    if mark.mean is not None:
      ends += [mark.mean - (mark.half_width or 0.0), mark.mean + (mark.half_width or 0.0)]
  if not ends:
    return figure
  bottom = figure.height - 36
  frame = axes.Frame((LEFT, 12, WIDTH - RIGHT, bottom), axes.spread(ends), (0, 1))
  frame.draw_x(figure, axis, grid=True)
  for n, mark in enumerate(marks):
    y = 24.0 + ROW * n
    colour = "c1" if mark.chosen else "c0"
    label = mark.label if len(mark.label) <= 46 else mark.label[:45] + "…"
    figure.text(LEFT - 12, y + 4, label, anchor="end", size=11, bold=mark.chosen)
    said = []
    if mark.mean is not None:
      if mark.half_width is not None:
        low, high = (frame.across(mark.mean + s * mark.half_width) for s in (-1, 1))
        figure.line([(low, y), (high, y)], colour, stroke=2)
      figure.circle(frame.across(mark.mean), y, 4.2, colour)
      width = "" if mark.half_width is None else f" ± {_figure(mark.half_width, mark.mean)}"
      said.append(f"{_figure(mark.mean, mark.mean)}{width}")
    if mark.published is not None:
      figure.circle(frame.across(mark.published), y, 4.2, "muted", hollow=True, stroke=1.5)
      said.append(f"published {_figure(mark.published, mark.published)}")
    figure.text(WIDTH - RIGHT + 12, y + 4, "; ".join(said) or "–", size=11)
  return figure


def _figure(value: float, beside: float) -> str:
  """Three decimals, one where the figure `beside` is in per cent."""
  return f"{value:.{3 if abs(beside) <= 1.5 else 1}f}".replace("-", "−")


def _said(marks: Sequence[Mark]) -> str:
  return "; ".join(f"{mark.label}: {mark.mean:.3f}" for mark in marks if mark.mean is not None)
