"""How similar every word of a question is to every word of a candidate, for a run.

As CETE's figures 2 and 3: a picture and, beside it, the matrix as text (x.png, .svg or .pdf, and x.tsv; of
a model with several grids x.mode-1.tsv …); where asked, those of the weights that training began
with, too (x.before.tsv). `as2jax explain` calls it.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.inference.explain import picture
from as2jax.inference.explain.token_similarity import Similarity, Words
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

CELL = 0.3  # inches
MARGIN = 2.3  # around the cells: labels, title, colour bar
WIDEST = 20.0  # of two pictures side by side; above it they stand one upon the other


def draw(panels: Sequence[tuple[str, Similarity]], form: str = ".png") -> bytes:
  """A picture of (title, similarity), in one scale of colours."""
  from matplotlib.figure import Figure

  rows, columns = panels[0][1].values.shape
  width, height = columns * CELL + MARGIN, rows * CELL + MARGIN
  beside = len(panels) * width <= WIDEST
  across, down = (len(panels), 1) if beside else (1, len(panels))
  figure = Figure(figsize=(max(across * width, 5.0) + 0.8, down * height), layout="constrained")
  axes = figure.subplots(down, across, squeeze=False).ravel()
  lowest = min(0.0, *(float(similarity.values.min()) for _, similarity in panels))
  what = panels[0][1].what
  highest = (
    1.0 if what == "cosine" else max(float(similarity.values.max()) for _, similarity in panels)
  )
  for n, (axis, (title, similarity)) in enumerate(zip(axes, panels, strict=True)):
    image = picture.cells(axis, similarity.values, cmap="viridis", vmin=lowest, vmax=highest)
    axis.set_xticks(
      range(columns),
      labels=similarity.candidate,
      rotation=60,
      ha="right",
      rotation_mode="anchor",
      parse_math=False,
    )
    axis.set_yticks(range(rows), labels=similarity.question, parse_math=False)
    axis.set_xlabel("candidate")
    axis.set_ylabel("question" if n == 0 or not beside else "")
    lines = textwrap.wrap(title, max(int(width * 9), 30))
    axis.set_title("\n".join(lines), fontsize=10, parse_math=False)
  bar = figure.colorbar(image, ax=list(axes), label=what, shrink=0.9)
  bar.solids.set_rasterized(False)
  return picture.written(figure, form)


def table(similarity: Similarity) -> str:
  """The matrix as tab-separated text: candidate words across, question words down."""
  lines = ["\t".join(["", *similarity.candidate])]
  for word, values in zip(similarity.question, similarity.values, strict=True):
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
  """Writes the picture and the matrices; returns the matrices, that of before training first.

  Args:
    question, candidate: two texts; or question_id, candidate_id: those of the run's `split`.
    seed: which of the run's; the best where None.
    before: whether the weights that training began with are shown, too.

  Raises:
    InputError: no run, no such question, candidate or seed, texts without words, an output that is
      picture or cannot be written.

  """
  output = epath.Path(output)
  form = picture.check(output)
  opened = Run(run)
  seed = opened.check_seed(seed)
  words = Words(
    opened, _question(opened.config, question, candidate, question_id, candidate_id, split)
  )
  moments = {"before": False, "after": True} if before else {"": True}
  panels = [
    (key, similarity)
    for key, trained in moments.items()
    for similarity in words.similarities(opened.ranker(seed, trained=trained))
  ]
  drawn = draw(
    [(_title(opened.folder.name, key, similarity), similarity) for key, similarity in panels], form
  )
  try:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(drawn)
    for key, similarity in panels:
      ending = ".before" * (key == "before") + f".{similarity.mode.replace(' ', '-')}" * bool(
        similarity.mode
      )
      write_whole(output.with_suffix(f"{ending}.tsv"), table(similarity))
  except OSError as error:
    raise InputError(f"--output={output} cannot be written: {error}") from error
  return [similarity for _, similarity in panels]


def _title(name: str, moment: str, similarity: Similarity) -> str:
  said = [
    name,
    *([f"{moment} training"] if moment else []),
    *([similarity.mode] if similarity.mode else []),
  ]
  return f"{', '.join(said)}: {similarity.score_name} {similarity.score:.3f}"


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
    asked = Question("Q", question, (Candidate("C", candidate),))
    return normalise.apply([asked], config.data.rules)[0]
  if any(texts) or not all(ids):
    raise InputError(
      "give --text-question and --text-candidate (two texts), or --question-id and --candidate-id"
    )
  data = load.load(config.data, config.evaluation.task)
  load.require(data, (split,))
  for listed in data.splits[split]:
    if listed.id == question_id:
      for one in listed.candidates:
        if one.id == candidate_id:
          return Question(listed.id, listed.text, (one,))
      raise InputError(
        f"--candidate-id={candidate_id}: question {question_id} has "
        f"{', '.join(c.id for c in listed.candidates[:5])} …"
      )
  raise InputError(
    f"--question-id={question_id}: {data.name} has no such question in its split "
    f"{split!r} (the first is {data.splits[split][0].id}); name another --split?"
  )


def nearest(similarity: Similarity, count: int = 5) -> list[dict[str, Any]]:
  """The pairs of words that are the most similar."""
  best = np.argsort(-similarity.values, axis=None)[:count]
  return [
    {
      "question": similarity.question[row],
      "candidate": similarity.candidate[column],
      similarity.what: float(similarity.values[row, column]),
    }
    for row, column in zip(*np.unravel_index(best, similarity.values.shape))
  ]


def report(similarity: Similarity) -> str:
  """The score, and the nearest words."""
  pairs = (
    f"{p['question']} – {p['candidate']} {p[similarity.what]:.2f}" for p in nearest(similarity)
  )
  return f"{similarity.score_name} {similarity.score:.3f}; nearest: {', '.join(pairs)}"
