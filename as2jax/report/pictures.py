"""Pictures of explanations: words against words, a graph of sentences, points in a plane."""

import math
from collections.abc import Sequence

import numpy as np

from as2jax.report import axes
from as2jax.report.drawing import Drawing, series

CELL, LETTER, SLANTED = 22, 6.4, 0.8  # pixels: of a cell, of a letter, of a turned letter's height
WORDS = 40  # of a sentence, in a picture; more are left out, which the caption says
SHADES = 16  # of a cell, from the weakest that is drawn to the strongest
NODE = 19  # radius of a graph's node, in pixels
BENT = 0.1  # of its length, by which an edge leaves the straight line
STEPS = 12  # straight pieces of a bent edge


def grid(
  title: str, rows: Sequence[str], columns: Sequence[str], values: np.ndarray, number: int
) -> Drawing:
  """A matrix as cells whose strength is the value, the greatest of each row ringed.

  Values below 0 are grey. Cells of one shade are one path: a page with a dozen matrices stays small.
  """
  rows, columns = list(rows[:WORDS]), list(columns[:WORDS])
  values = np.asarray(values)[: len(rows), : len(columns)]
  left = 12 + LETTER * max((len(word) for word in rows), default=1)
  head = 34 + LETTER * SLANTED * max((len(word) for word in columns), default=1)
  slant = 40 + LETTER * 0.6 * max((len(word) for word in columns), default=1)
  width = max(left + CELL * len(columns) + slant, LETTER * len(title) + 20)
  drawing = Drawing(width, head + CELL * len(rows) + 8, title, _strongest(rows, columns, values))
  drawing.text(0, 14, title, bold=True)
  highest, rings = max(float(np.abs(values).max(initial=0.0)), 1e-9), []
  for j, word in enumerate(columns):
    drawing.text(left + CELL * (j + 0.6), head - 6, word, turn=-52, size=11)
  for i, word in enumerate(rows):
    y = head + CELL * i
    drawing.rect(left, y, CELL * len(columns) - 1, CELL - 1, "grid", opacity=0.5)
    drawing.text(left - 8, y + CELL * 0.68, word, anchor="end", size=11)
    if len(columns):
      j = int(values[i].argmax())
      tip = f"{word} – {columns[j]}: {float(values[i, j]):.3f}"
      rings.append(((left + CELL * j + 7.5, y + 7.5, 6, 6), tip))
  strength = np.rint(values / highest * SHADES).astype(int)
  for shade in sorted(set(strength.ravel().tolist()) - {0}):
    at = np.argwhere(strength == shade).tolist()
    corners = [(left + CELL * j, head + CELL * i) for i, j in at]
    colour = series(number) if shade > 0 else "muted"
    drawing.squares(corners, CELL - 1, colour, opacity=round(abs(shade) / SHADES, 2))
  for place, tip in rings:
    drawing.rect(*place, "ink", hollow=True, stroke=1, tip=tip)
  return drawing


def _strongest(rows: Sequence[str], columns: Sequence[str], values: np.ndarray) -> str:
  if not len(columns):
    return "no word"
  best = [columns[int(v.argmax())] for v in values]
  return "; ".join(f"{word}: {other}" for word, other in zip(rows, best, strict=True))


def graph(title: str, names: Sequence[str], edges: np.ndarray, number: int) -> Drawing:
  """A graph of sentences: an arrow is as wide as its weight.

  Args:
    edges: `[K, K]`, what sentence j (column) sends to sentence i; 0 where either is absent.

  """
  names, count = [_short(name) for name in names], len(names)
  middle, radius = (190.0, 172.0), 62.0 + 12 * count
  drawing = Drawing(
    max(380.0, LETTER * len(title) + 20), middle[1] + radius + 50, title, _sent(names, edges)
  )
  drawing.text(0, 14, title, bold=True)
  turns = [2 * math.pi * n / count - math.pi / 2 for n in range(count)]
  at = [(middle[0] + radius * math.cos(t), middle[1] + radius * math.sin(t)) for t in turns]
  for (i, j), value in np.ndenumerate(edges):
    if i != j and value > 0:
      strongest = value >= np.delete(edges[i], i).max(initial=0.0)
      said = f"{value:.2f}" if count <= 3 or strongest else ""
      tip = f"{names[j]} to {names[i]}: {value:.3f}"
      _edge(drawing, at[j], at[i], 0.5 + 5 * float(value), said, tip, series(number))
  for n, (x, y) in enumerate(at):
    absent = not edges[n].any()
    drawing.circle(x, y, NODE, "muted" if absent else series(number), hollow=True, stroke=1.5)
    own = "–" if absent else f"{edges[n, n]:.2f}"
    drawing.text(x, y + 4, own, "muted" if absent else "ink", anchor="middle", size=11)
    beside = math.cos(turns[n])
    anchor = "middle" if abs(beside) < 0.3 else "start" if beside > 0 else "end"
    along = 0.0 if anchor == "middle" else math.copysign(NODE + 7, beside)
    below = (NODE + 16 if math.sin(turns[n]) > 0 else -NODE - 8) if anchor == "middle" else 4
    drawing.text(x + along, y + below, names[n], anchor=anchor, size=11)
  return drawing


def _short(name: str) -> str:
  """`cand. 1` of `candidate 1`, so that it fits beside its node."""
  kind, _, rest = name.partition(" ")
  return f"cand. {rest}" if kind == "candidate" and rest else name


def _sent(names: Sequence[str], edges: np.ndarray) -> str:
  """What each sentence sends to which, as a screen reader says it."""
  said = [f"{names[j]} to {names[i]} {v:.2f}" for (i, j), v in np.ndenumerate(edges) if v]
  return "; ".join(said)


def _edge(
  drawing: Drawing,
  start: tuple[float, float],
  end: tuple[float, float],
  width: float,
  said: str,
  tip: str,
  colour: str,
) -> None:
  """A bent arrow between the rims of two nodes; its weight stands nearer to the sender."""
  (x0, y0), (x1, y1) = start, end
  length = math.hypot(x1 - x0, y1 - y0)
  u, v = (x1 - x0) / length, (y1 - y0) / length
  bend = BENT * length
  control = ((x0 + x1) / 2 - v * 2 * bend, (y0 + y1) / 2 + u * 2 * bend)
  rim = (NODE + 3) / length
  points = []
  for n in range(STEPS + 1):
    t = rim + (1 - 2 * rim) * n / STEPS
    weights = (1 - t) ** 2, 2 * t * (1 - t), t * t
    points.append(
      tuple(sum(w * p[k] for w, p in zip(weights, (start, control, end))) for k in (0, 1))
    )
  drawing.line(points, colour, stroke=round(width, 2), opacity=0.75, tip=tip)
  (ax, ay), (bx, by) = points[-2:]
  turn = math.atan2(by - ay, bx - ax)
  head = [(bx - 9 * math.cos(turn + s), by - 9 * math.sin(turn + s)) for s in (0.4, -0.4)]
  drawing.line([head[0], (bx, by), head[1]], colour, stroke=1.8)
  if said:
    x, y = points[STEPS // 3]
    drawing.text(x - v * 11, y + u * 11 + 4, said, "muted", anchor="middle", size=10)


def scatter(title: str, points: np.ndarray, number: int) -> Drawing:
  """Numbered points `[n, 2]`, both axes in one scale."""
  drawing = Drawing(410, 330, title, f"{len(points)} questions")
  drawing.text(0, 14, title, bold=True)
  middle = (points.max(0) + points.min(0)) / 2
  half = max(float(np.ptp(points, axis=0).max()) / 2, 0.05) * 1.15
  ranges = [(float(m - half), float(m + half)) for m in middle]
  frame = axes.Frame((58, 28, 396, 300), *ranges)
  frame.draw_y(drawing)
  frame.draw_x(drawing)
  for n, (x, y) in enumerate(points.tolist(), 1):
    drawing.circle(frame.across(x), frame.up(y), 3, series(number))
    drawing.text(frame.across(x) + 5, frame.up(y) - 3, str(n), size=10)
  return drawing
