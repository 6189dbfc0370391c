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


def label(value: float) -> str:
  """A value beside an axis: few digits, no trailing zeros."""
  if value == 0:
    return "0"
  if abs(value) >= 1e5 or abs(value) < 1e-3:
    mantissa, _, power = f"{value:.1e}".partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(power)}".replace("-", "−")
  return f"{value:.6g}".replace("-", "−")


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
    for value in ticks(*self.x, count):
      x = self.across(value)
      if grid:
        drawing.line([(x, self.top), (x, self.bottom)], "grid")
      drawing.text(x, self.bottom + 14, label(value), "muted", anchor="middle", size=10)
    if name:
      middle = (self.left + self.right) / 2
      drawing.text(middle, self.bottom + 29, name, "muted", anchor="middle", size=11)

  def draw_y(self, drawing: Drawing, *, count: int = 4) -> None:
    """Draws the vertical axis with its lines across the frame."""
    for value in ticks(*self.y, count):
      y = self.up(value)
      drawing.line([(self.left, y), (self.right, y)], "grid")
      drawing.text(self.left - 6, y + 3.5, label(value), "muted", anchor="end", size=10)
