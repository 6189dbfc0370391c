"""Scales and axes of figures: where a value lies, and which values are written beside it."""

import math
from collections.abc import Sequence

from as2jax.report.drawing import Drawing


def ticks(low: float, high: float, count: int = 5) -> list[float]:
  """About `count` round values within [low, high]."""
  if not math.isfinite(low + high) or high <= low:
    return [low]
  raw = (high - low) / count
  power = 10.0 ** math.floor(math.log10(raw))
  step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
  first = math.ceil(low / step - 1e-9)
  return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def label(value: float, step: float = 0.0) -> str:
  """A value beside an axis: few digits, no trailing zeros; more where neighbours lie `step` apart."""
  if value == 0:
    return "0"
  if abs(value) >= 1e5 or abs(value) < 1e-3:
    digits = max(math.ceil(math.log10(abs(value) / step) - 1e-9), 0) if step else 1
    mantissa, _, power = f"{value:.{max(digits, 1)}e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(power)}".replace("-", "−")
  digits = max(math.ceil(math.log10(abs(value) / step) + 1), 6) if step else 6
  return f"{value:.{digits}g}".replace("-", "−")


def labels(values: Sequence[float]) -> list[str]:
  """What stands beside the ticks of an axis, no two of them alike."""
  step = values[1] - values[0] if len(values) > 1 else 0.0
  return [label(value, step) for value in values]


def spread(values: Sequence[float], margin: float = 0.06) -> tuple[float, float]:
  """The range of the values, widened by a part of itself."""
  low, high = min(values), max(values)
  wide = (high - low) or abs(high) or 1.0
  return low - margin * wide, high + margin * wide


class Frame:
  """The rectangle of a figure in which values are drawn.

  Attributes:
    left, top, right, bottom: its edges, in pixels.
    x, y: the values at its edges, (low, high).

  """

  def __init__(
    self, box: tuple[float, float, float, float], x: tuple[float, float], y: tuple[float, float]
  ):
    self.left, self.top, self.right, self.bottom = box
    self.x, self.y = x, y

  def across(self, value: float) -> float:
    """The pixel of a value of the horizontal axis."""
    low, high = self.x
    return self.left + (value - low) / ((high - low) or 1.0) * (self.right - self.left)

  def up(self, value: float) -> float:
    """The pixel of a value of the vertical axis."""
    low, high = self.y
    return self.bottom - (value - low) / ((high - low) or 1.0) * (self.bottom - self.top)

  def draw_x(self, drawing: Drawing, name: str = "", *, grid: bool = False, count: int = 5) -> None:
    """Draws the horizontal axis, below the frame."""
    values = ticks(*self.x, count)
    for value, said in zip(values, labels(values), strict=True):
      x = self.across(value)
      if grid:
        drawing.line([(x, self.top), (x, self.bottom)], "grid")
      drawing.text(x, self.bottom + 14, said, "muted", anchor="middle", size=10)
    if name:
      middle = (self.left + self.right) / 2
      drawing.text(middle, self.bottom + 29, name, "muted", anchor="middle", size=11)

  def draw_y(self, drawing: Drawing, *, count: int = 4) -> None:
    """Draws the vertical axis with its lines across the frame."""
    values = ticks(*self.y, count)
    for value, said in zip(values, labels(values), strict=True):
      y = self.up(value)
      drawing.line([(self.left, y), (self.right, y)], "grid")
      drawing.text(self.left - 6, y + 3.5, said, "muted", anchor="end", size=10)
