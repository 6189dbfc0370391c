"""Pictures of matplotlib as files: PNG, or SVG and PDF with lines as lines and text as text."""

import io
from typing import Any

import numpy as np
from etils import epath

from as2jax.runtime.errors import InputError

FORMS = (".png", ".svg", ".pdf")


def check(output: epath.PathLike) -> str:
  """The form of a picture by its file's name; InputError where it is none of `FORMS`."""
  suffix = epath.Path(output).suffix.lower()
  if suffix not in FORMS:
    raise InputError(f"--output={output}: name a file that ends in {', '.join(FORMS)}")
  return suffix


def written(figure: Any, form: str) -> bytes:
  """A figure as the content of a file; the same figure gives the same bytes."""
  import matplotlib
  from matplotlib.backends import backend_agg, backend_pdf, backend_svg  # they need no display

  content = io.BytesIO()
  settings = {"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "as2jax"}
  with matplotlib.rc_context(settings):
    if form == ".png":
      backend_agg.FigureCanvasAgg(figure).print_png(content)
    elif form == ".pdf":
      backend_pdf.FigureCanvasPdf(figure).print_pdf(content, metadata={"CreationDate": None})
    else:
      backend_svg.FigureCanvasSVG(figure).print_svg(content, metadata={"Date": None})
  return content.getvalue()


def cells(axis: Any, values: np.ndarray, **style: Any) -> Any:
  """A matrix as coloured cells, its first row above; each cell is a shape of its own, no pixels."""
  rows, columns = values.shape
  across, down = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
  mesh = axis.pcolormesh(across, down, values, **style)
  axis.set_xlim(-0.5, columns - 0.5)
  axis.set_ylim(rows - 0.5, -0.5)
  return mesh
