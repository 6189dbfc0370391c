"""Curves of training: the metric that selects, losses and diagnostics against steps and seconds."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from as2jax.report import axes
from as2jax.report.drawing import Drawing, series
from as2jax.report.runs import Runs, System

WIDTH, HEIGHT = 410, 230
MOST = 400  # points of a curve; of more, means of neighbours are drawn
FIRST = ("loss", "learning_rate", "gradient_norm")
HIDDEN = {"seed", "step", "epoch", "seconds_per_step"}


class Curve(NamedTuple):
  """Values of one seed of one system; `best` is the step of its best checkpoint, where known."""

  label: str
  number: int
  x: tuple[float, ...]
  y: tuple[float, ...]
  best: float | None = None


def drawings(runs: Runs) -> dict[str, Drawing]:
  """{name: figure}: the selecting metric and the loss over steps and seconds, the others over steps."""
  figures: dict[str, Drawing] = {}
  trained = [(n, s) for n, s in enumerate(runs.systems) if s.log]
  names = sorted({name for _, system in trained for name in _scalars(system)})
  for axis in ("step", "seconds"):
    curves = [curve for n, s in trained for curve in _selected(n, s, axis)]
    if curves:
      keys = {_selector(system) for _, system in trained}
      title = keys.pop() if len(keys) == 1 else "each run's selecting metric"
      figures[f"dev-{axis}"] = draw(title, axis, curves)
    curves = [curve for n, s in trained for curve in _curves(n, s, "loss", axis)]
    if curves:
      figures[f"loss-{axis}"] = draw("training loss", axis, curves)
  rest = [name for name in FIRST if name in names] + [n for n in names if n not in FIRST]
  for name in rest:
    if name != "loss":
      curves = [curve for n, s in trained for curve in _curves(n, s, name, "step")]
      figures[f"curve-{_file(name)}"] = draw(name.replace("_", " "), "step", curves)
  curves = [curve for n, s in trained for curve in _throughput(n, s)]
  if curves:
    figures["curve-throughput"] = draw("steps a second", "step", curves)
  return {name: drawing for name, drawing in figures.items() if drawing.shapes}


def _file(name: str) -> str:
  return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def draw(title: str, axis: str, curves: Sequence[Curve]) -> Drawing:
  """One figure; nothing in it where no curve has two points."""
  figure = Drawing(WIDTH, HEIGHT, f"{title} by {axis}", _said(curves))
  shown = [curve for curve in curves if len(curve.x) > 1 or curve.best is not None]
  if not any(len(curve.x) > 1 for curve in shown):
    return figure
  x = (min(min(c.x) for c in shown), max(max(c.x) for c in shown))
  frame = axes.Frame(
    (58, 28, WIDTH - 14, HEIGHT - 40), x, axes.spread([v for c in shown for v in c.y])
  )
  figure.text(0, 14, title, bold=True, size=12)
  frame.draw_y(figure)
  frame.draw_x(figure, {"step": "steps", "seconds": "seconds of training"}[axis])
  for curve in shown:
    colour = series(curve.number)
    points = [(frame.across(a), frame.up(b)) for a, b in zip(curve.x, curve.y, strict=True)]
    figure.line(_thinned(points), colour, stroke=1.6, opacity=0.9)
    if curve.best is not None:
      at = min(range(len(curve.x)), key=lambda i: abs(curve.x[i] - (curve.best or 0.0)))
      tip = f"{curve.label}, best: {curve.y[at]:.4f}"
      figure.circle(*points[at], 4.5, colour, hollow=True, stroke=2, tip=tip)
  return figure


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
  """At most `MOST` points, each the mean of as many neighbours."""
  size = -(-len(points) // MOST)
  groups = [points[i : i + size] for i in range(0, len(points), size)]
  return [(sum(p[0] for p in g) / len(g), sum(p[1] for p in g) / len(g)) for g in groups]


def _said(curves: Sequence[Curve]) -> str:
  return "; ".join(f"{c.label}: from {c.y[0]:.4g} to {c.y[-1]:.4g}" for c in curves if c.y)


def _training(system: System, seed: int) -> list[dict[str, Any]]:
  return [row for row in system.log if row["seed"] == seed and "seconds_per_step" in row]


def _clock(system: System, seed: int) -> dict[int, float]:
  """Step -> seconds of training until then, without evaluations."""
  clock, before, spent = {0: 0.0}, 0, 0.0
  for row in _training(system, seed):
    spent += max(row["step"] - before, 0) * row["seconds_per_step"]
    before = row["step"]
    clock[before] = spent
  return clock


def _place(clock: dict[int, float], step: int, axis: str) -> float:
  if axis == "step":
    return float(step)
  return clock[max((s for s in clock if s <= step), default=0)]


def _scalars(system: System) -> set[str]:
  """Names of what is neither a metric of a split nor a place."""
  names = {name for row in system.log for name, value in row.items() if _is_number(value)}
  return {name for name in names - HIDDEN if "[" not in name}


def _is_number(value: Any) -> bool:
  return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _curves(number: int, system: System, name: str, axis: str) -> list[Curve]:
  curves = []
  for seed in system.seeds:
    rows = [r for r in system.log if r["seed"] == seed and _is_number(r.get(name))]
    clock = _clock(system, seed)
    x = tuple(_place(clock, row["step"], axis) for row in rows)
    if x:
      curves.append(Curve(_label(system, seed), number, x, tuple(float(r[name]) for r in rows)))
  return curves


def _selector(system: System) -> str:
  """`map[wikiqa-clean/dev]`, by which the run selects."""
  content = system.content or {}
  metric, split, rule = content.get("selected_on", ", , ").split(", ")
  return f"{metric}[{content.get('data', {}).get('name', '')}-{rule}/{split}]"


def _selected(number: int, system: System, axis: str) -> list[Curve]:
  """The metric that selects, with the best checkpoint of each seed."""
  content, curves = system.content or {"seeds": []}, []
  for outcome in content["seeds"]:
    for curve in _curves(number, system, _selector(system), axis):
      if curve.label == _label(system, outcome["seed"]):
        best = _place(_clock(system, outcome["seed"]), outcome["best_step"], axis)
        curves.append(curve._replace(best=best))
  return curves


def _throughput(number: int, system: System) -> list[Curve]:
  curves = []
  for seed in system.seeds:
    rows = [row for row in _training(system, seed) if row["seconds_per_step"] > 0]
    if rows:
      y = tuple(1 / row["seconds_per_step"] for row in rows)
      curves.append(Curve(_label(system, seed), number, tuple(float(r["step"]) for r in rows), y))
  return curves


def _label(system: System, seed: int) -> str:
  return f"{system.label}, seed {seed}" if len(system.seeds) > 1 else system.label
