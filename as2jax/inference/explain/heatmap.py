"""python -m as2jax.inference.explain.heatmap --run=runs/x --question=… --candidate=… --output=x.png: words by words.

The cosine of every word of a question with every word of a candidate by the run's token vectors
(CETE, figures 2 and 3), as a picture and, beside it, as x.tsv; with --before those of the weights
that training began with, too (x.before.tsv).
"""

import argparse
import io
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.inference.explain.token_similarity import Similarity, Words
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

CELL = 0.3  # inches
MARGIN = 2.3  # around the cells: labels, title, colour bar
WIDEST = 20.0  # of two pictures side by side; above it they stand one upon the other


def draw(panels: Sequence[tuple[str, Similarity]]) -> bytes:
  """A PNG of one or two (title, similarity), in one scale of colours."""
  from matplotlib.backends.backend_agg import FigureCanvasAgg  # needs no display
  from matplotlib.figure import Figure

  rows, columns = panels[0][1].cosine.shape
  width, height = columns * CELL + MARGIN, rows * CELL + MARGIN
  beside = len(panels) * width <= WIDEST
  across, down = (len(panels), 1) if beside else (1, len(panels))
  figure = Figure(figsize=(max(across * width, 5.0) + 0.8, down * height), layout="constrained")
  axes = figure.subplots(down, across, squeeze=False).ravel()
  lowest = min(0.0, *(float(found.cosine.min()) for _, found in panels))
  for n, (axis, (title, found)) in enumerate(zip(axes, panels, strict=True)):
    image = axis.imshow(found.cosine, cmap="viridis", vmin=lowest, vmax=1.0, aspect="auto")
    axis.set_xticks(
      range(columns),
      labels=found.candidate,
      rotation=60,
      ha="right",
      rotation_mode="anchor",
      parse_math=False,
    )
    axis.set_yticks(range(rows), labels=found.question, parse_math=False)
    axis.set_xlabel("candidate")
    axis.set_ylabel("question" if n == 0 or not beside else "")
    lines = textwrap.wrap(title, max(int(width * 9), 30))
    axis.set_title("\n".join(lines), fontsize=10, parse_math=False)
  figure.colorbar(image, ax=list(axes), label="cosine", shrink=0.9)
  picture = io.BytesIO()
  FigureCanvasAgg(figure).print_png(picture)
  return picture.getvalue()


def table(found: Similarity) -> str:
  """The matrix as tab-separated text: candidate words across, question words down."""
  lines = ["\t".join(["", *found.candidate])]
  for word, values in zip(found.question, found.cosine, strict=True):
    lines.append("\t".join([word, *(f"{value:.6f}" for value in values)]))
  return "\n".join(lines) + "\n"


def make(
  run: epath.PathLike,
  output: epath.PathLike,
  *,
  question: str | None = None,
  candidate: str | None = None,
  question_id: str | None = None,
  candidate_id: str | None = None,
  split: str = "test",
  seed: int | None = None,
  before: bool = False,
) -> list[Similarity]:
  """Writes the picture and the matrices; returns the matrices, that of the untrained weights first.

  Args:
    question, candidate: two texts; or question_id, candidate_id: those of the run's `split`.
    seed: which of the run's; its first where None.
    before: whether the untrained weights are shown, too.

  Raises:
    InputError: no run, no such question, candidate or seed, texts without words, an output that is
      no .png or cannot be written.

  """
  output = epath.Path(output)
  if output.suffix != ".png":
    raise InputError(f"--output={output}: name a file that ends in .png")
  opened = Run(run)
  seed = opened.check_seed(seed)
  words = Words(
    opened, _question(opened.config, question, candidate, question_id, candidate_id, split)
  )
  moments = {"before": False, "after": True} if before else {"": True}
  name = opened.folder.name
  panels = {
    key: words.similarity(opened.ranker(seed, trained=trained)) for key, trained in moments.items()
  }
  titled = [
    (
      f"{name}{', ' * bool(key)}{key and key + ' training'}: {found.score_name} {found.score:.3f}",
      found,
    )
    for key, found in panels.items()
  ]
  picture = draw(titled)
  try:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(picture)
    for key, found in panels.items():
      write_whole(output.with_suffix(".before.tsv" if key == "before" else ".tsv"), table(found))
  except OSError as error:
    raise InputError(f"--output={output} cannot be written: {error}") from error
  return list(panels.values())


def _question(
  config: Any,
  question: str | None,
  candidate: str | None,
  question_id: str | None,
  candidate_id: str | None,
  split: str,
) -> Any:
  """The question with the one candidate, under the run's text rules."""
  from as2jax.data.datasets import load
  from as2jax.data.record import Candidate, Question
  from as2jax.data.text import normalise

  texts, ids = (question, candidate), (question_id, candidate_id)
  if all(texts) and not any(ids):
    given = Question("Q", question, (Candidate("C", candidate),))
    return normalise.apply([given], config.data.rules)[0]
  if any(texts) or not all(ids):
    raise InputError(
      "give --question and --candidate (two texts), or --question-id and --candidate-id"
    )
  data = load.load(config.data, config.evaluation.task)
  load.require(data, (split,))
  for found in data.splits[split]:
    if found.id == question_id:
      for one in found.candidates:
        if one.id == candidate_id:
          return Question(found.id, found.text, (one,))
      raise InputError(
        f"--candidate-id={candidate_id}: question {question_id} has "
        f"{', '.join(c.id for c in found.candidates[:5])} …"
      )
  raise InputError(
    f"--question-id={question_id}: {data.name} has no such question in its split "
    f"{split!r} (the first is {data.splits[split][0].id}); name another --split?"
  )


def main(arguments: Sequence[str] | None = None) -> int:
  """Makes the picture; returns the exit status: 0, or 2 for bad input."""
  parser = argparse.ArgumentParser(
    prog="python -m as2jax.inference.explain.heatmap",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("--run", required=True, help="folder of a run")
  parser.add_argument("--output", required=True, help="the picture, a .png")
  for name in ("question", "candidate"):
    parser.add_argument(f"--{name}", help="a text")
  for name in ("question", "candidate"):
    parser.add_argument(f"--{name}-id", help="one of the run's data, in place of a text")
  parser.add_argument("--split", default="test", help="of the ids")
  parser.add_argument("--seed", type=int, help="which of the run's; the first where not given")
  parser.add_argument("--before", action="store_true", help="show the untrained weights beside it")
  given = vars(parser.parse_args(arguments))
  try:
    found = make(
      given.pop("run"), given["output"], **{k: v for k, v in given.items() if k != "output"}
    )
  except InputError as error:
    print(f"as2jax: {error}", file=sys.stderr)
    return 2
  rows, columns = np.unravel_index(
    np.argsort(-found[-1].cosine, axis=None)[:5], found[-1].cosine.shape
  )
  pairs = ", ".join(
    f"{found[-1].question[r]} – {found[-1].candidate[c]} {found[-1].cosine[r, c]:.2f}"
    for r, c in zip(rows, columns)
  )
  print(
    f"written: {given['output']} ({found[-1].score_name} {found[-1].score:.3f}; nearest: {pairs})"
  )
  return 0


if __name__ == "__main__":
  sys.exit(main())
