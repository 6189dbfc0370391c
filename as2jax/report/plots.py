"""Draw what a page shows: means with intervals, curves of training, what these began with."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from as2jax.report.figures import Drawing, Frame, series, spread
from as2jax.report.runs import Runs, System

ROW, WIDE, EDGE = 32, 400, 8
LETTERS = 44  # of a label
WIDTH, HEIGHT = 410, 230  # of a curve
MOST = 400  # points of a curve; of more, means of neighbours are drawn
FIRST = ("loss", "learning_rate", "gradient_norm")
HIDDEN = {"seed", "step", "epoch", "seconds_per_step"}


class Mark(NamedTuple):
  """Hold a line of `intervals`."""

  label: str  # of the system
  mean: float
  half_width: float | None = None
  number: int = 0  # of the system, for its colour
  seeds: Sequence[float] = ()  # their means, drawn as small rings


def intervals(blocks: Mapping[str, Sequence[Mark]], axis: str) -> Drawing:
  """Draw a line a mark, below headings: the mean of a metric with its half-width, and those of seeds."""
  ends, said, rows = [], [], 0.0
  for heading, marks in blocks.items():
    rows += len(marks) + 0.5
    for mark in marks:
      width = mark.half_width or 0.0
      ends += [*mark.seeds, mark.mean - width, mark.mean + width]
      said.append(f"{mark.label} {heading} {mark.mean:.3f}")
  height = rows * ROW + 40
  figure = Drawing(WIDE, height, axis, "; ".join(said))
  frame = Frame((EDGE, 4, WIDE - EDGE, height - 36), spread(ends, 0, 1), (0, 1))
  frame.draw_x(figure, axis, grid=True)
  y = 16.0
  for heading, marks in blocks.items():
    figure.text(EDGE, y, heading, bold=True)
    for mark in marks:
      _interval(figure, frame, mark, y + 0.5 * ROW)
      y += ROW
    y += 0.5 * ROW
  return figure


def _interval(figure: Drawing, frame: Frame, mark: Mark, y: float) -> None:
  colour, text, label = series(mark.number), f"{mark.mean:.3f}", mark.label
  if len(label) > LETTERS:
    label = "…" + label[1 - LETTERS :]
  figure.text(frame.left, y, label, size=11)
  if mark.half_width is not None:
    text += f" ± {mark.half_width:.3f}"
  figure.text(frame.right, y, text, anchor="end", size=11)
  y += 9
  if mark.half_width is not None:
    ends = mark.mean - mark.half_width, mark.mean + mark.half_width
    low, high = (frame.across(end) for end in np.clip(ends, *frame.x).tolist())
    figure.line([(low, y), (high, y)], colour, stroke=2)
  for seed in mark.seeds if len(mark.seeds) > 1 else ():
    figure.circle(frame.across(seed), y, 2.2, colour, hollow=True, stroke=1)
  figure.circle(frame.across(mark.mean), y, 4.2, colour, tip=f"{mark.label}: {mark.mean:.4f}")


def systems(runs: Runs, rows: Sequence[dict[str, Any]]) -> Drawing:
  """Draw every system's mean of every metric (`rows` of `compare.compare`) with half-width and seeds."""
  blocks: dict[str, list[Mark]] = {}
  numbers = {system.label: n for n, system in enumerate(runs.systems)}
  for row in rows:
    metric, number = row["metric"].partition("[")[0], numbers[row["system"]]
    system = runs.systems[number]
    seeds = system.scores.metric(metric).mean(1).tolist()
    mark = Mark(system.label, row["mean"], row["half_width"], number, seeds)
    blocks.setdefault(metric.upper(), []).append(mark)
  if len(numbers) == 1 and (before := before_training(runs.systems[0])):
    title, untrained, best = before
    mark = Mark("before training", untrained, number=1)
    blocks[title] = [Mark(runs.systems[0].label, best), mark]
  return intervals(blocks, "mean over questions; line: 95 % half-width; small rings: seeds")


def before_training(system: System) -> tuple[str, float, float] | None:
  """Return the metric that selects (`MAP on dev`), its mean over seeds before training, and of the best checkpoints.

  None where nothing was trained, or the log is not there.
  """
  title = _selector(system)
  untrained = [row[title] for row in system.log if row.get("epoch") == 0 and title in row]
  if not untrained:
    return None
  best = [outcome["best_value"] for outcome in system.content["seeds"]]
  metric, split, _ = system.content["selected_on"].split(", ")
  return f"{metric.upper()} on {split}", float(np.mean(untrained)), float(np.mean(best))


class Curve(NamedTuple):
  """Hold the values of one seed of one system."""

  label: str
  number: int
  x: Sequence[float]
  y: Sequence[float]
  best: float | None = None  # the step of its best checkpoint


def training(runs: Runs) -> dict[str, Drawing]:
  """Return {name: figure}: the metric that selects, the loss and the other scalars over steps."""
  by_title: dict[str, list[Curve]] = {name: [] for name in ("selector", *FIRST)}
  for number, system in enumerate(runs.systems):
    by_title["selector"] += _curves(number, system, _selector(system), best=True)
    names = {name for row in system.log for name in row if "[" not in name}
    for name in sorted(names - HIDDEN, key=lambda name: (name not in FIRST, name)):
      by_title.setdefault(name, [])
      by_title[name] += _curves(number, system, name)
  figures: dict[str, Drawing] = {}
  for name, curves in by_title.items():
    title = "metric that selects" if name == "selector" else name.replace("_", " ")
    if any(len(one.x) > 1 for one in curves):
      most = 1.0 if name == "selector" else math.inf
      figures["curve-" + re.sub(r"[^a-z0-9]+", "-", name.lower())] = curve(title, curves, most)
  return figures


def curve(title: str, curves: Sequence[Curve], most: float = math.inf) -> Drawing:
  """Draw curves over steps in one figure, whose vertical axis ends at `most`."""
  said = [f"{c.label}: from {c.y[0]:.4g} to {c.y[-1]:.4g}" for c in curves]
  figure = Drawing(WIDTH, HEIGHT, f"{title} by step", "; ".join(said))
  x = min(min(c.x) for c in curves), max(max(c.x) for c in curves)
  y = spread([value for c in curves for value in c.y], most=most)
  frame = Frame((58, 28, WIDTH - 14, HEIGHT - 40), x, y)
  figure.text(0, 14, title, bold=True, size=12)
  frame.draw_y(figure)
  frame.draw_x(figure, "steps")
  for one in curves:
    colour = series(one.number)
    points = [(frame.across(a), frame.up(b)) for a, b in zip(one.x, one.y, strict=True)]
    figure.line(thinned(points), colour, stroke=1.6, opacity=0.9)
    if one.best is not None:
      distance = np.abs(np.asarray(one.x) - one.best)
      at = int(distance.argmin())
      tip = f"{one.label}, best: {one.y[at]:.4f}"
      figure.circle(*points[at], 4.5, colour, hollow=True, stroke=2, tip=tip)
  return figure


def thinned(points: Sequence[tuple[float, float]]) -> list[Sequence[float]]:
  """Return at most `MOST` points, each the mean of as many neighbours."""
  size = -(-len(points) // MOST)
  starts = range(0, len(points), size)
  return [np.mean(points[start : start + size], axis=0).tolist() for start in starts]


def _curves(number: int, system: System, name: str, *, best: bool = False) -> list[Curve]:
  """Return a curve a seed of a column of the log; `best`: with the step of its best checkpoint."""
  outcomes = (system.content or {}).get("seeds", ())
  steps = {outcome["seed"]: float(outcome["best_step"]) for outcome in outcomes}
  curves = []
  for seed in system.seeds:
    x, y = [], []
    for row in system.log:
      value = row.get(name)
      if row["seed"] == seed and isinstance(value, (int, float)) and value == value:
        x.append(float(row["step"]))
        y.append(float(value))
    if x:
      label = f"{system.label}, seed {seed}" if len(system.seeds) > 1 else system.label
      curves.append(Curve(label, number, x, y, steps.get(seed) if best else None))
  return curves


def _selector(system: System) -> str:
  """Return `map[wikiqa-clean/dev]`, by which the run selects."""
  content = system.content or {}
  metric, split, rule = content.get("selected_on", ", , ").split(", ")
  return f"{metric}[{content.get('data', {}).get('name', '')}-{rule}/{split}]"
