"""Heat maps: each word of a question against each word of a candidate (`as2jax explain`).

A picture (x.png, .svg or .pdf) as CETE's figures 2 and 3 and, beside it, each matrix as text: x.tsv, of
a model with several x.mode-1.tsv, x.candidate.tsv ….
"""

import textwrap
from collections.abc import Sequence

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
  split: str = "test",
  seed: int | None = None,
) -> list[Similarity]:
  """Writes the picture and the matrices; returns the matrices.

  Args:
    question, candidates, previous, following: texts; of candidates one, in a joint run up to K.
    question_id: one of the run's `split` in place of texts (`explain.from_data`).
    seed: which of the run's; the best where None.

  """
  output = epath.Path(output)
  if output.suffix.lower() not in FORMS:
    raise InputError(f"--output={output}: name a file that ends in {', '.join(FORMS)}")
  opened = Run(run)
  config, seed = opened.config, opened.check_seed(seed)
  if question_id and not (question or candidates or previous or following):
    asked = explain.from_data(config, question_id, split)
  elif question and candidates and not question_id:
    asked = explain.from_texts(config, question, candidates, previous=previous, following=following)
  else:
    raise InputError(
      "give --text-question and --text-candidate (with --previous and --next, where the run reads "
      "context), or --question-id"
    )
  panels = explain.Words(opened, asked).similarities(opened.ranker(seed))
  try:
    output.parent.mkdir(parents=True, exist_ok=True)
    draw(panels, output, opened.folder.name)
    for panel in panels:
      mode = f".{panel.mode.replace(' ', '-')}" if panel.mode else ""
      write_whole(output.with_suffix(f"{mode}.tsv"), table(panel))
  except OSError as error:
    raise InputError(f"--output={output} cannot be written: {error}") from error
  return panels


def draw(panels: Sequence[Similarity], output: epath.Path, name: str) -> None:
  """Draws matrices of a run's `name` one below the other; PDF and SVG keep text and shapes."""
  import matplotlib
  from matplotlib.figure import Figure

  widest = max(len(panel.candidate) for panel in panels)
  tall = [len(panel.question) * CELL + MARGIN for panel in panels]
  size = (max(widest * CELL + MARGIN, 5.0) + 0.8, sum(tall))
  figure = Figure(figsize=size, layout="constrained")
  axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=tall).ravel()
  lowest, highest = 0.0, 1.0
  if panels[0].what != "cosine":
    highest = max(float(panel.values.max()) for panel in panels)
  for panel in panels:
    lowest = min(lowest, float(panel.values.min()))
  for axis, panel in zip(axes, panels, strict=True):
    rows, columns = panel.values.shape
    edges = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    image = axis.pcolormesh(*edges, panel.values, cmap="viridis", vmin=lowest, vmax=highest)
    axis.set_ylim(rows - 0.5, -0.5)
    turned = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
    axis.set_xticks(range(columns), labels=panel.candidate, parse_math=False, **turned)
    axis.set_yticks(range(rows), labels=panel.question, parse_math=False)
    axis.set_ylabel("question")
    title = f"{name} {panel.mode}: {panel.score_name} {panel.score:.3f}"
    lines = textwrap.wrap(title, max(int(size[0] * 9), 30))
    axis.set_title("\n".join(lines), fontsize=10, parse_math=False)
  bar = figure.colorbar(image, ax=list(axes), label=panels[0].what, shrink=0.9)
  bar.solids.set_rasterized(False)
  with (
    matplotlib.rc_context({"pdf.fonttype": 42, "svg.fonttype": "none"}),
    output.open("wb") as file,
  ):
    figure.savefig(file, format=output.suffix.lower()[1:])


def table(similarity: Similarity) -> str:
  """Returns the matrix as tab-separated text: candidate words across, question words down."""
  lines = ["\t".join(["", *similarity.candidate])]
  for word, values in zip(similarity.question, similarity.values, strict=True):
    lines.append("\t".join([word, *(f"{value:.6f}" for value in values)]))
  return "\n".join(lines) + "\n"
