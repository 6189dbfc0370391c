"""Heat maps: each word of a question against each word of a candidate (`as2jax explain`).

A picture (x.png, .svg or .pdf) as CETE's figures 2 and 3 and, beside it, each matrix as text: x.tsv, of
a model with several x.mode-1.tsv, x.candidate.tsv ….
"""

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.inference import explain
from as2jax.inference.explain import Similarity
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

FORMS = (".png", ".svg", ".pdf")
CELL = 0.3  # inches
MARGIN = 2.3  # around the cells: labels, title, colour bar


def make(
  run: epath.PathLike,
  output: epath.PathLike,
  *,
  question: str = "",
  candidates: Sequence[str] = (),
  previous: str = "",
  following: str = "",
  question_id: str = "",
  candidate_id: str | None = None,
  split: str = "test",
  seed: int | None = None,
) -> list[Similarity]:
  """Writes the picture and the matrices; returns the matrices.

  Args:
    question, candidates, previous, following: texts; of candidates one, in a joint run up to K.
    question_id, candidate_id: those of the run's `split` in place of texts (`explain.from_data`).
    seed: which of the run's; the best where None.

  Raises:
    InputError: no run, no such question, candidate or seed, texts without words, an output that is
      no picture or cannot be written.

  """
  output = epath.Path(output)
  form = picture_form(output)
  opened = Run(run)
  config, seed = opened.config, opened.check_seed(seed)
  texts = question and candidates
  if question_id and not (question or candidates or previous or following):
    asked = explain.from_data(config, question_id, candidate_id, split)
  elif texts and not question_id and candidate_id is None:
    asked = explain.from_texts(config, question, candidates, previous=previous, following=following)
  else:
    raise InputError(
      "give --text-question and --text-candidate (with --previous and --next, where the run reads "
      "context), or --question-id (and --candidate-id)"
    )
  panels = explain.Words(opened, asked).similarities(opened.ranker(seed))
  titles = []
  for panel in panels:
    name = ", ".join(filter(None, (opened.folder.name, panel.mode)))
    titles.append(f"{name}: {panel.score_name} {panel.score:.3f}")
  try:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(draw(list(zip(titles, panels)), form))
    for panel in panels:
      mode = f".{panel.mode.replace(' ', '-')}" if panel.mode else ""
      write_whole(output.with_suffix(f"{mode}.tsv"), table(panel))
  except OSError as error:
    raise InputError(f"--output={output} cannot be written: {error}") from error
  return panels


def picture_form(output: epath.PathLike) -> str:
  """Returns the form of a picture by its file's name; InputError where it is none of `FORMS`."""
  suffix = epath.Path(output).suffix.lower()
  if suffix not in FORMS:
    raise InputError(f"--output={output}: name a file that ends in {', '.join(FORMS)}")
  return suffix


def draw(panels: Sequence[tuple[str, Similarity]], form: str = ".png") -> bytes:
  """Draws (title, similarity) one below the other, in one scale of colours; PDF and SVG keep text."""
  from matplotlib.figure import Figure

  widest = max(len(panel.candidate) for _, panel in panels)
  tall = [len(panel.question) * CELL + MARGIN for _, panel in panels]
  size = (max(widest * CELL + MARGIN, 5.0) + 0.8, sum(tall))
  figure = Figure(figsize=size, layout="constrained")
  axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=tall).ravel()
  lowest = min(0.0, *(float(panel.values.min()) for _, panel in panels))
  highest = max(float(panel.values.max()) for _, panel in panels)
  what = panels[0][1].what
  scale = {"vmin": lowest, "vmax": 1.0 if what == "cosine" else highest}
  for axis, (title, panel) in zip(axes, panels, strict=True):
    rows, columns = panel.values.shape
    edges = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    image = axis.pcolormesh(*edges, panel.values, cmap="viridis", **scale)  # shapes, no pixels
    axis.set_xlim(-0.5, columns - 0.5)
    axis.set_ylim(rows - 0.5, -0.5)
    turned = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
    axis.set_xticks(range(columns), labels=panel.candidate, parse_math=False, **turned)
    axis.set_yticks(range(rows), labels=panel.question, parse_math=False)
    if panel.marked is not None:
      for at in np.flatnonzero(panel.marked):
        axis.get_xticklabels()[at].set(weight="bold", color="tab:red")
    axis.set_ylabel("question")
    lines = textwrap.wrap(title, max(int(size[0] * 9), 30))
    axis.set_title("\n".join(lines), fontsize=10, parse_math=False)
  bar = figure.colorbar(image, ax=list(axes), label=what, shrink=0.9)
  bar.solids.set_rasterized(False)
  return _written(figure, form)


def _written(figure: Any, form: str) -> bytes:
  """Returns a figure as the content of a file; the same figure gives the same bytes."""
  import matplotlib

  dates = {".png": None, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
  settings = {"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "as2jax"}
  content = io.BytesIO()
  with matplotlib.rc_context(settings):
    figure.savefig(content, format=form[1:], metadata=dates[form])
  return content.getvalue()


def table(similarity: Similarity) -> str:
  """Returns the matrix as tab-separated text: candidate words across, question words down."""
  lines = ["\t".join(["", *similarity.candidate])]
  for word, values in zip(similarity.question, similarity.values, strict=True):
    lines.append("\t".join([word, *(f"{value:.6f}" for value in values)]))
  return "\n".join(lines) + "\n"


def nearest(panels: Sequence[Similarity], count: int = 5) -> list[dict[str, Any]]:
  """Returns of each matrix the pairs of words with the greatest values."""
  rows = []
  for panel in panels:
    best = np.argsort(-panel.values, axis=None, kind="stable")[:count]
    for row, column in zip(*np.unravel_index(best, panel.values.shape)):
      pair = {"question": panel.question[row], "candidate": panel.candidate[column]}
      mode = {"mode": panel.mode} if panel.mode else {}
      rows.append({**mode, **pair, panel.what: float(panel.values[row, column])})
  return rows


def report(panels: Sequence[Similarity]) -> str:
  """Returns a line a matrix: the score, and the pairs of words with the greatest values."""
  lines = []
  for panel in panels:
    pairs = []
    for pair in nearest([panel]):
      pairs.append(f"{pair['question']} – {pair['candidate']} {pair[panel.what]:.2f}")
    name = f"{panel.mode}: " if panel.mode else ""
    lines.append(f"{name}{panel.score_name} {panel.score:.3f}; nearest: {', '.join(pairs)}")
  return "\n".join(lines)
