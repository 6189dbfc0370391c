"""Draw figures as SVG: shapes by classes of colours, which follow the page's light or dark theme.

Coordinates are in CSS pixels from the upper left corner.
"""

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup, escape

FONT = "Helvetica, Arial, sans-serif"
SERIES = 6  # colours before they come again
SHADES = 10  # behind a sentence, by its probability: the classes p1 to p10
DARKEST = 50  # percent of the first colour in the last of them
# Class -> (colour on a light page, on a dark one). Each has a contrast of 4.5 and more with the paper.
COLOURS = {
  "ink": ("#1b1f24", "#e8eaed"),
  "muted": ("#5a6270", "#a4acb8"),
  "grid": ("#e3e6ea", "#2f343b"),
  "paper": ("#ffffff", "#15181c"),
  "c0": ("#0b5fa5", "#6cb4f0"),
  "c1": ("#b0430a", "#f29d6d"),
  "c2": ("#1d7348", "#6fcf97"),
  "c3": ("#74489e", "#c6a5ea"),
  "c4": ("#7d6000", "#dfc05e"),
  "c5": ("#00697a", "#5fcddb"),
}


def series(number: int) -> str:
  """Return the class of the n-th system."""
  return f"c{number % SERIES}"


def colour_rules() -> str:
  """Return the CSS of the classes: variables, light and dark, and the rules that use them."""
  light, dark, rules = [], [], []
  for name, pair in COLOURS.items():
    light.append(f"--{name}:{pair[0]};")
    dark.append(f"--{name}:{pair[1]};")
    colour = f"var(--{name})"
    rules.append(f".d-{name}{{stroke:{colour}}}.f-{name}{{fill:{colour}}}")
    rules.append(f".h-{name}{{stroke:{colour};fill:var(--paper)}}")
  for shade in range(1, SHADES + 1):
    mixed = f"color-mix(in srgb,var(--c0) {DARKEST * shade // SHADES}%,var(--paper))"
    rules.append(f".p{shade}{{background:{mixed}}}")
  return (
    f":root{{{''.join(light)}color-scheme:light dark}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{''.join(dark)}}}}}{''.join(rules)}"
  )


class Drawing:
  """Hold a figure of a fixed size; a screen reader says its title and description."""

  def __init__(self, width: float, height: float, title: str, description: str = ""):
    self.width, self.height = width, height
    self.title, self.description = title, description
    self.shapes: list[Markup] = []

  def line(self, points: Sequence[Sequence[float]], colour: str, **style: Any) -> None:
    """Draw an open line; `stroke`, `opacity` and `tip` in `style`, as of all shapes."""
    places = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
    self._add("polyline", f"d-{colour}", {"fill": "none", "points": places}, **style)

  def circle(
    self, x: float, y: float, radius: float, colour: str, *, hollow: bool = False, **style: Any
  ) -> None:
    """Draw a disc, or a ring."""
    kind = "h" if hollow else "f"
    self._add("circle", f"{kind}-{colour}", {"cx": x, "cy": y, "r": radius}, **style)

  def squares(
    self,
    corners: Sequence[tuple[float, float]],
    size: float,
    colour: str,
    *,
    wide: float = 0,
    hollow: bool = False,
    **style: Any,
  ) -> None:
    """Draw squares (rectangles so `wide`) of one size, by their upper left corners, as one shape."""
    kind, height, width = "h" if hollow else "f", _number(size), _number(wide or size)
    parts = [f"M{_number(x)} {_number(y)}h{width}v{height}h-{width}z" for x, y in corners]
    self._add("path", f"{kind}-{colour}", {"d": "".join(parts)}, **style)

  def text(
    self,
    x: float,
    y: float,
    text: str,
    colour: str = "ink",
    *,
    anchor: str = "start",
    size: int = 12,
    bold: bool = False,
    turn: float = 0,
  ) -> None:
    """Write text whose base line begins, has its middle or ends at (x, y)."""
    place: dict[str, Any] = {"x": x, "y": y, "font-size": size, "text-anchor": anchor}
    if bold:
      place["font-weight"] = 600
    if turn:
      place["transform"] = f"rotate({_number(turn)} {_number(x)} {_number(y)})"
    self._add("text", f"f-{colour}", place, text)

  def _add(
    self,
    tag: str,
    kind: str,
    attributes: dict[str, Any],
    text: str = "",
    tip: str = "",
    **style: Any,
  ) -> None:
    for name, value in style.items():
      attributes[name.replace("stroke", "stroke-width")] = value
    parts = [Markup('<{} class="{}"').format(Markup(tag), kind)]
    for name, value in attributes.items():
      written = _number(value) if isinstance(value, float) else value
      parts.append(Markup(' {}="{}"').format(Markup(name), written))
    parts.append(Markup(">") + escape(text))
    if tip:
      parts.append(Markup("<title>{}</title>").format(tip))
    self.shapes.append(Markup("").join([*parts, Markup("</{}>").format(Markup(tag))]))

  def __html__(self) -> str:
    """Return the figure as an element of a page."""
    said = f"{self.title}. {self.description}" if self.description else self.title
    size = (
      f'viewBox="0 0 {_number(self.width)} {_number(self.height)}" width="{_number(self.width)}"'
    )
    head = Markup('<svg class="figure" {} role="img" font-family="{}" aria-label="{}">')
    return head.format(Markup(size), FONT, said) + Markup("").join(self.shapes) + Markup("</svg>")


def _number(value: float) -> str:
  return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
  """Return about `count` round values within [low, high]."""
  if not math.isfinite(low + high) or high <= low:
    return [low]
  raw = (high - low) / count
  power = 10.0 ** math.floor(math.log10(raw))
  step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
  first = math.ceil(low / step - 1e-9)
  return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def labels(values: Sequence[float]) -> list[str]:
  """Return what stands beside the ticks of an axis, no two of them alike."""
  for digits in range(6, 17):
    said = [f"{value:.{digits}g}".replace("-", "−") for value in values]
    if len(set(said)) == len(values):
      return said
  return [repr(value) for value in values]


def spread(
  values: Sequence[float], least: float = -math.inf, most: float = math.inf
) -> tuple[float, float]:
  """Return the range of the values, widened by a part of itself, within `least` and `most`."""
  low, high = min(values), max(values)
  margin = 0.06 * ((high - low) or abs(high) or 1.0)
  return max(low - margin, least), min(high + margin, most)


class Frame:
  """Map values to pixels within a box (left, top, right, bottom) of a figure, and draw its axes."""

  def __init__(
    self, box: tuple[float, float, float, float], x: tuple[float, float], y: tuple[float, float]
  ):
    self.left, self.top, self.right, self.bottom = box
    self.x, self.y = x, y

  def across(self, value: float) -> float:
    """Return the pixel of a value of the horizontal axis."""
    low, high = self.x
    return self.left + (value - low) / ((high - low) or 1.0) * (self.right - self.left)

  def up(self, value: float) -> float:
    """Return the pixel of a value of the vertical axis."""
    low, high = self.y
    return self.bottom - (value - low) / ((high - low) or 1.0) * (self.bottom - self.top)

  def draw_x(self, drawing: Drawing, name: str = "", *, grid: bool = False) -> None:
    """Draw the horizontal axis, below the frame."""
    values = ticks(*self.x)
    for value, said in zip(values, labels(values), strict=True):
      x = self.across(value)
      if grid:
        drawing.line([(x, self.top), (x, self.bottom)], "grid")
      drawing.text(x, self.bottom + 14, said, "muted", anchor="middle", size=10)
    middle = (self.left + self.right) / 2
    drawing.text(middle, self.bottom + 29, name, "muted", anchor="middle", size=11)

  def draw_y(self, drawing: Drawing) -> None:
    """Draw the vertical axis with its lines across the frame."""
    values = ticks(*self.y, 4)
    for value, said in zip(values, labels(values), strict=True):
      y = self.up(value)
      drawing.line([(self.left, y), (self.right, y)], "grid")
      drawing.text(self.left - 6, y + 3.5, said, "muted", anchor="end", size=10)
