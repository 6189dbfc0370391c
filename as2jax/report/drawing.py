"""Figures as lists of shapes, written as SVG (in the page or a file of its own) and as PDF.

Coordinates are in CSS pixels from the upper left corner. Shapes have no colours, but classes: the page
colours them by variables, so that a figure follows the reader's light or dark theme; a file of its
own and the PDF have the light colours.
"""

import io
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

FONT = "Helvetica, Arial, sans-serif"
SERIES = 6  # colours before they come again
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


class Shape(NamedTuple):
  """One element: `tag` of SVG, its attributes, its text, and what a pointer is told."""

  tag: str
  attributes: dict[str, Any]
  text: str = ""
  tip: str = ""


def series(number: int) -> str:
  """The class of the n-th system."""
  return f"c{number % SERIES}"


def variables(dark: bool) -> str:
  """The colours as CSS declarations `--ink: …;`."""
  return "".join(f"--{name}:{pair[dark]};" for name, pair in COLOURS.items())


def rules(value: str = "var(--{})") -> str:
  """The CSS rules of the classes; `value` makes a colour of a class's name."""
  colour = {name: value.format(name) if "{}" in value else COLOURS[name][0] for name in COLOURS}
  lines = [
    f".d-{name}{{stroke:{of}}}.f-{name}{{fill:{of}}}.h-{name}{{stroke:{of};fill:{colour['paper']}}}"
    for name, of in colour.items()
  ]
  return "".join(lines)


class Drawing:
  """A figure of a fixed size.

  Attributes:
    title, description: what a screen reader says in place of the picture.

  """

  def __init__(self, width: float, height: float, title: str, description: str = ""):
    self.width, self.height = width, height
    self.title, self.description = title, description
    self.shapes: list[Shape] = []

  def line(self, points: Sequence[tuple[float, float]], colour: str, **style: Any) -> None:
    """An open line; `stroke`, `dash` and `opacity` in `style`."""
    at = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
    self._add("polyline", {"class": f"d-{colour}", "fill": "none", "points": at}, **style)

  def circle(self, x: float, y: float, radius: float, colour: str, **style: Any) -> None:
    """A disc; with `hollow=True` a ring."""
    kind = "h" if style.pop("hollow", False) else "f"
    place = {"cx": _number(x), "cy": _number(y), "r": _number(radius)}
    self._add("circle", {"class": f"{kind}-{colour}", **place}, **style)

  def rect(
    self, x: float, y: float, width: float, height: float, colour: str, **style: Any
  ) -> None:
    """A filled rectangle; `data` is the number of what it stands for in the page."""
    kind = "h" if style.pop("hollow", False) else "f"
    place = dict(zip(("x", "y", "width", "height"), map(_number, (x, y, width, height))))
    self._add("rect", {"class": f"{kind}-{colour}", **place}, **style)

  def squares(
    self, corners: Sequence[tuple[float, float]], size: float, colour: str, **style: Any
  ) -> None:
    """Filled squares of one size and colour, by their upper left corners, as one shape."""
    side = _number(size)
    path = "".join(f"M{_number(x)} {_number(y)}h{side}v{side}h-{side}z" for x, y in corners)
    self._add("path", {"class": f"f-{colour}", "d": path}, **style)

  def text(
    self, x: float, y: float, text: str, colour: str = "ink", *, anchor: str = "start", **style: Any
  ) -> None:
    """Text whose base line begins, has its middle or ends at (x, y); `size`, `bold`, `turn`."""
    size, turn = style.pop("size", 12), style.pop("turn", 0)
    attributes = {
      "class": f"f-{colour}",
      "x": _number(x),
      "y": _number(y),
      "font-size": _number(size),
    }
    if anchor != "start":
      attributes["text-anchor"] = anchor
    if style.pop("bold", False):
      attributes["font-weight"] = "600"
    if turn:
      attributes["transform"] = f"rotate({_number(turn)} {_number(x)} {_number(y)})"
    self._add("text", attributes, text, **style)

  def _add(self, tag: str, attributes: dict[str, Any], text: str = "", **style: Any) -> None:
    names = {"stroke": "stroke-width", "dash": "stroke-dasharray", "data": "data-q"}
    tip = style.pop("tip", "")
    extra = {names.get(name, name): value for name, value in style.items()}
    self.shapes.append(Shape(tag, {**attributes, **extra}, text, tip))

  def svg(self, *, alone: bool = False) -> str:
    """The figure as an element of a page; `alone`: as a file of its own, with its colours."""
    size = f'viewBox="0 0 {_number(self.width)} {_number(self.height)}"'
    head = (
      f'<svg class="figure" {size} width="{_number(self.width)}" role="img" font-family="{FONT}"'
    )
    if alone:
      head += f' height="{_number(self.height)}" xmlns="http://www.w3.org/2000/svg"'
    said = f"{self.title}. {self.description}" if self.description else self.title
    head += f' aria-label="{escape(said)}">'
    style = f"<style>{rules('light')}</style>" * alone
    return head + style + "".join(map(_element, self.shapes)) + "</svg>"

  def pdf(self) -> bytes:
    """The figure as one page of PDF, its text as text (matplotlib, of the extra `report`)."""
    import matplotlib
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"pdf.fonttype": 42}):
      figure = Figure(figsize=(self.width / 72, self.height / 72))
      axes = figure.add_axes((0, 0, 1, 1), xlim=(0, self.width), ylim=(self.height, 0))
      axes.set_axis_off()
      for shape in self.shapes:
        axes.add_artist(_artist(shape))
      written = io.BytesIO()
      FigureCanvasPdf(figure).print_pdf(written, metadata={"CreationDate": None})
    return written.getvalue()


def _number(value: float) -> str:
  return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def _element(shape: Shape) -> str:
  attributes = "".join(f' {name}="{escape(str(v))}"' for name, v in shape.attributes.items())
  inner = escape(shape.text) + (f"<title>{escape(shape.tip)}</title>" if shape.tip else "")
  return (
    f"<{shape.tag}{attributes}>{inner}</{shape.tag}>" if inner else f"<{shape.tag}{attributes}/>"
  )


def _artist(shape: Shape) -> Any:
  """The shape as matplotlib's."""
  from matplotlib import lines, patches, text

  attributes = shape.attributes
  kind, name = attributes["class"].split("-")
  colour, paper = COLOURS[name][0], COLOURS["paper"][0]
  number = lambda key: float(attributes[key])
  # One order for all: matplotlib would lay lines over discs.
  look = {"alpha": float(attributes.get("opacity", 1.0)), "zorder": 1}
  width = float(attributes.get("stroke-width", 1.0))
  if shape.tag == "polyline":
    points = [tuple(map(float, pair.split(","))) for pair in attributes["points"].split()]
    dash = [float(part) for part in str(attributes.get("stroke-dasharray", "")).split()]
    style: Any = (0, dash) if dash else "-"
    x, y = [p[0] for p in points], [p[1] for p in points]
    return lines.Line2D(x, y, color=colour, linewidth=width, linestyle=style, **look)
  if shape.tag == "text":
    turn = float(attributes.get("transform", "rotate(0 ").split("(")[1].split(" ")[0])
    sides = {"start": "left", "middle": "center", "end": "right"}
    return text.Text(
      number("x"),
      number("y"),
      shape.text,
      color=colour,
      fontsize=number("font-size"),
      fontweight="bold" if "font-weight" in attributes else "normal",
      rotation=-turn,
      rotation_mode="anchor",
      horizontalalignment=sides[attributes.get("text-anchor", "start")],
      verticalalignment="baseline",
      parse_math=False,
      **look,
    )
  fill = {
    "facecolor": paper if kind == "h" else colour,
    "edgecolor": colour if kind == "h" else "none",
  }
  if shape.tag == "path":
    return patches.PathPatch(_squares(attributes["d"]), linewidth=0, **fill, **look)
  if shape.tag == "circle":
    return patches.Circle(
      (number("cx"), number("cy")), number("r"), linewidth=width, **fill, **look
    )
  corner = (number("x"), number("y"))
  return patches.Rectangle(
    corner, number("width"), number("height"), linewidth=width, **fill, **look
  )


def _squares(text: str) -> Any:
  """The path of `Drawing.squares` as matplotlib's."""
  from matplotlib.path import Path

  squares = []
  for part in text.split("z")[:-1]:
    corner, rest = part.removeprefix("M").split("h", 1)
    x, y = map(float, corner.split())
    side = float(rest.partition("v")[0])
    points = [(x, y), (x + side, y), (x + side, y + side), (x, y + side), (x, y)]
    squares.append(Path(points, closed=True))
  return Path.make_compound_path(*squares)
