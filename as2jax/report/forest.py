"""The forest plot: every system's mean of every metric with its half-width, its seeds as dots."""

from collections.abc import Mapping, Sequence
from typing import Any

from as2jax.evaluation import compare
from as2jax.report import axes, markup
from as2jax.report.drawing import Drawing, series
from as2jax.report.runs import Runs

ROW, HEAD, FOOT = 22, 30, 34
LEFT, WIDTH, RIGHT = 210, 860, 130
Published = Mapping[tuple[str, str], float]  # (metric, whose) -> figure


def drawing(runs: Runs, rows: Sequence[dict[str, Any]], published: Published) -> Drawing:
  """One block a metric, one line a system; published figures are hollow marks below."""
  metrics = list(dict.fromkeys(row["metric"] for row in rows))
  short = lambda title: title.partition("[")[0]
  theirs = {m: [(who, x) for (of, who), x in published.items() if of == short(m)] for m in metrics}
  count = len(rows) + sum(map(len, theirs.values()))
  height = HEAD + count * ROW + len(metrics) * 16 + FOOT
  where = metrics[0].partition("[")[2].rstrip("]")
  figure = Drawing(
    WIDTH, height, f"Forest plot of {len(runs.systems)} systems on {where}", _said(rows)
  )
  ends = [row["mean"] + s * (row["half_width"] or 0) for row in rows for s in (-1, 1)]
  low, high = axes.spread([*ends, *(x for its in theirs.values() for _, x in its)])
  frame = axes.Frame(
    (LEFT, HEAD, WIDTH - RIGHT, height - FOOT), (max(low, 0), min(high, 1.02)), (0, 1)
  )
  frame.draw_x(figure, "mean over questions; line: 95 % half-width; small dots: seeds", grid=True)
  y = HEAD + 8.0
  for metric in metrics:
    figure.text(0, y + 10, short(metric).upper(), bold=True)
    for number, (system, row) in enumerate(
      zip(runs.systems, [row for row in rows if row["metric"] == metric], strict=True)
    ):
      seeds = system.scores.metric(short(metric)).mean(1).tolist()
      _line(figure, frame, y + 6, row, seeds, number, system.label)
      y += ROW
    for who, value in theirs[metric]:
      figure.text(LEFT - 10, y + 10, _cut(who, 34), "muted", anchor="end", size=11)
      figure.circle(frame.across(value), y + 6, 4.5, "muted", hollow=True, stroke=1.5, tip=who)
      figure.text(WIDTH - RIGHT + 14, y + 10, f"{value:.3f} published", "muted", size=11)
      y += ROW
    y += 16
  return figure


def _line(
  figure: Drawing,
  frame: axes.Frame,
  y: float,
  row: dict,
  seeds: Sequence[float],
  n: int,
  label: str,
) -> None:
  colour, mean, width = series(n), row["mean"], row["half_width"]
  figure.text(LEFT - 10, y + 4, _cut(label), anchor="end", size=12)
  if width is not None:
    low, high = (frame.across(min(max(mean + s * width, frame.x[0]), frame.x[1])) for s in (-1, 1))
    figure.line([(low, y), (high, y)], colour, stroke=2)
  for value in seeds if len(seeds) > 1 else ():
    figure.circle(frame.across(value), y, 2.2, colour, hollow=True, stroke=1)
  figure.circle(frame.across(mean), y, 4.5, colour, tip=f"{label}: {mean:.4f}")
  spread = "" if width is None else f" ± {width:.3f}"
  figure.text(WIDTH - RIGHT + 14, y + 4, f"{mean:.3f}{spread}", size=12)


def _cut(label: str, most: int = 26) -> str:
  return label if len(label) <= most else "…" + label[1 - most :]


def _said(rows: Sequence[dict[str, Any]]) -> str:
  return "; ".join(f"{row['system']} {row['metric']} {row['mean']:.3f}" for row in rows)


def table(runs: Runs, rows: Sequence[dict[str, Any]]) -> str:
  """The figures behind the plot, with the tests against the first system."""
  named = {system.name: system.label for system in runs.systems}
  several = len(runs.systems) > 1
  head = ["system", "metric", "mean", "±", "s.d. (seeds)"]
  head += ["difference", "±", "p (t)", "p (rand.)", "p (methods)"] * several
  cells, values = [], []
  for row in rows:
    width = row["half_width"]
    spread = "–" if row["sd"] is None else f"{row['sd']:.4f} ({row['seeds']})"
    cells.append(
      [
        named[row["system"]],
        row["metric"].partition("[")[0].upper(),
        f"{row['mean']:.4f}",
        "–" if width is None else f"{width:.4f}",
        spread,
        *(_tests(row) if several else ()),
      ]
    )
    values.append([None, None, row["mean"], width, row["sd"], *[None] * 5 * several])
  return markup.table(head, cells, left=2, values=values)


def _tests(row: dict[str, Any]) -> list[str]:
  if "p_t" not in row:
    return ["", "", "", "", ""]
  methods = "–" if row["p_methods"] is None else compare.p_text(row["p_methods"])
  return [
    f"{row['difference']:+.4f}".replace("-", "−"),
    f"{row['difference_half_width']:.4f}",
    compare.p_text(row["p_t"]),
    compare.p_text(row["p_randomization"]),
    methods,
  ]
