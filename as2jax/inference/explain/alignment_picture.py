"""What a run of CASSIE makes of one question, as a picture and as text.

The transport plan between the words of the question and those of each sentence (candidate and
context, or in a joint run K candidates), the relevant context in bold, the transport costs, and the
weights of the graph's edges (x.png, .svg or .pdf, x.tsv, x.edges.tsv). `as2jax explain` calls it.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.inference.explain import alignment_view, picture
from as2jax.inference.explain.alignment_view import Sentence, View
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

CELL = 0.3  # of a plan, inches
EDGE = 0.62  # of the edges' weights, with its number
LETTER = 0.078  # of a label, and of a title's text
LINE = 0.17  # height of a title's line
SLANT = 60  # degrees by which the words of a sentence are turned
MARKED = "tab:red"


def draw(view: View, title: str, form: str = ".png") -> bytes:
  """A picture: a plan for each sentence, one below the other, and the edges under them."""
  from matplotlib.figure import Figure

  left = 0.4 + LETTER * max(map(len, view.words))
  width = max(left + 0.3 + CELL * max(len(s.words) for s in view.sentences), 7.5)
  wrap = lambda text: textwrap.wrap(text, int((width - 0.3) / LETTER)) or [""]
  head = wrap(title) + wrap(f"question: {view.question}")
  captions = [wrap(_caption(sentence)) for sentence in view.sentences]
  panels = [_panel_size(view, sentence) for sentence in view.sentences]
  foot = (len(view.sentences) * EDGE + 1.6) if view.edges is not None else 0.9
  height = (
    (len(head) + 1) * LINE
    + foot
    + sum(len(lines) * LINE + tall + below for lines, (_, tall, below) in zip(captions, panels))
  )
  figure = Figure(figsize=(width, height))
  at = height - 0.1

  def write(lines: Sequence[str], **style) -> None:
    nonlocal at
    for line in lines:
      at -= LINE
      figure.text(0.15 / width, at / height, line, fontsize=9, parse_math=False, **style)

  write(head, weight="bold")
  highest = max(float(s.plan.max(initial=0)) for s in view.sentences)
  image = None
  for sentence, lines, (wide, tall, below) in zip(view.sentences, captions, panels):
    at -= LINE / 2
    write(lines)
    if sentence.words:
      at -= tall + 0.08
      axis = figure.add_axes((left / width, at / height, wide / width, tall / height))
      image = _plan(axis, view, sentence, highest)
    at -= below
  box = lambda x, y, w, h: figure.add_axes((x / width, y / height, w / width, h / height))
  if view.edges is not None:
    side = EDGE * len(view.sentences)
    _edges(box(1.2, 0.25, side, side), view)
    place = (1.2 + side + 0.9, side / 2, max(width - side - 2.6, 1.5), 0.14)
  else:
    place = (1.2, 0.45, width - 2.6, 0.14)
  bar = figure.colorbar(
    image,
    cax=box(*place),
    orientation="horizontal",
    label="plan π"
    + ("; red: a question word's most, the relevant context" if view.transported else ""),
  )
  bar.solids.set_rasterized(False)
  return picture.written(figure, form)


def _panel_size(view: View, sentence: Sentence) -> tuple[float, float, float]:
  """Width, height, and height of the words below, in inches."""
  if not sentence.words:
    return 0.0, 0.0, 0.1
  longest = max(map(len, sentence.words)) * LETTER
  return (
    CELL * len(sentence.words),
    CELL * len(view.words),
    longest * math.sin(math.radians(SLANT)) + 0.25,
  )


def _caption(sentence: Sentence) -> str:
  if not sentence.words:
    return f"{sentence.name}: " + ("no word" if sentence.text else "none")
  scored = (
    "" if sentence.logit is None else (f", p {1 / (1 + math.exp(-max(sentence.logit, -700))):.3f}")
  )
  return f"{sentence.name} (cost {sentence.distance:.2f}{scored}): {sentence.text}"


def _plan(axis: Any, view: View, sentence: Sentence, highest: float) -> Any:
  """A plan as colours; a dot on the largest of each row, the words that so are relevant in bold."""
  image = picture.cells(axis, sentence.plan, cmap="Blues", vmin=0.0, vmax=highest)
  axis.set_xticks(
    range(len(sentence.words)),
    labels=sentence.words,
    rotation=SLANT,
    ha="right",
    rotation_mode="anchor",
    fontsize=9,
    parse_math=False,
  )
  axis.set_yticks(range(len(view.words)), labels=view.words, fontsize=9, parse_math=False)
  axis.tick_params(length=2)
  for label, relevant in zip(axis.get_xticklabels(), sentence.relevant):
    if relevant and view.transported:
      label.set(weight="bold", color=MARKED)
  if view.transported:
    axis.plot(sentence.plan.argmax(1), range(len(view.words)), "o", markersize=3.5, color=MARKED)
  return image


def _edges(axis: Any, view: View) -> None:
  """α: rows receive, columns send."""
  names = [sentence.name for sentence in view.sentences]
  picture.cells(axis, view.edges, cmap="Greens", vmin=0.0, vmax=1.0)
  axis.set_xticks(range(len(names)), labels=[f"{_short(name)}" for name in names], fontsize=9)
  axis.xaxis.tick_top()
  axis.set_yticks(range(len(names)), labels=names, fontsize=9)
  axis.set_title("edges α: from (column) to (row)", fontsize=9, loc="left")
  for (i, j), value in np.ndenumerate(view.edges):
    axis.text(
      j,
      i,
      f"{value:.2f}" if value else "–",
      ha="center",
      va="center",
      fontsize=9,
      color="white" if value > 0.6 else "black",
    )


def _short(name: str) -> str:
  kind, _, number = name.partition(" ")
  return number or {"candidate": "cand.", "previous": "prev."}.get(kind, kind)


def table(view: View) -> str:
  """A line for each pair of words: sentence, both words, plan, cost, whether it is relevant."""
  lines = ["sentence\tquestion_word\tword\tplan\tcost\trelevant"]
  for sentence in view.sentences:
    for (i, j), mass in np.ndenumerate(sentence.plan):
      lines.append(
        f"{sentence.name}\t{view.words[i]}\t{sentence.words[j]}\t{mass:.6f}\t"
        f"{sentence.cost[i, j]:.6f}\t{int(sentence.relevant[j])}"
      )
  return "\n".join(lines) + "\n"


def edge_table(view: View) -> str:
  """The edges' weights as a matrix: rows receive, columns send."""
  names = [sentence.name for sentence in view.sentences]
  rows = [
    f"{name}\t" + "\t".join(f"{value:.6f}" for value in values)
    for name, values in zip(names, view.edges)
  ]
  return "\n".join(["\t".join(["", *names]), *rows]) + "\n"


def make(
  run: epath.PathLike,
  output: epath.PathLike,
  *,
  question: str | None = None,
  candidate: Sequence[str] | None = None,
  previous: str = "",
  following: str = "",
  question_id: str | None = None,
  candidate_id: str | None = None,
  split: str = "test",
  seed: int | None = None,
) -> View:
  """Writes the picture and the tables; returns what they show.

  Args:
    question, candidate, previous, following: texts; of candidates one, in a joint run up to K.
    question_id, candidate_id: those of the run's `split` in place of texts (`from_data`).
    seed: which of the run's; the best where None.

  Raises:
    InputError: no run, or one of a model that aligns nothing; no such question, candidate or seed;
      texts without words; an output that is no picture or cannot be written.

  """
  output = epath.Path(output)
  form = picture.check(output)
  opened = Run(run)
  config = opened.config
  alignment_view.check(config, run)
  seed = opened.check_seed(seed)
  by_text = question is not None and candidate and question_id is None and candidate_id is None
  if by_text:
    chosen = alignment_view.from_texts(
      config, question, candidate, previous=previous, following=following
    )
  elif question_id is not None and not (question or candidate or previous or following):
    chosen = alignment_view.from_data(config, question_id, candidate_id, split)
  else:
    raise InputError(
      "give --text-question and --text-candidate (texts; --previous and --next, too), or "
      "--question-id (and --candidate-id)"
    )
  view = alignment_view.Alignments(opened, chosen).view(opened.ranker(seed))
  title = f"{opened.folder.name}, seed {seed}"
  if not view.transported:
    title += " — model.alignment = mean: no transport, every word is relevant"
  drawn = draw(view, title, form)
  try:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(drawn)
    write_whole(output.with_suffix(".tsv"), table(view))
    if view.edges is not None:
      write_whole(output.with_suffix(".edges.tsv"), edge_table(view))
  except OSError as error:
    raise InputError(f"--output={output} cannot be written: {error}") from error
  return view


def report(view: View) -> str:
  """A line for each sentence: its cost, and each question word with the word it chose."""
  lines = []
  for sentence in view.sentences:
    if not sentence.words:
      continue
    chosen = (
      "every word"
      if not view.transported
      else ", ".join(
        f"{word} → {sentence.words[j]}" for word, j in zip(view.words, sentence.plan.argmax(1))
      )
    )
    p = "" if sentence.logit is None else f", logit {sentence.logit:.3f}"
    lines.append(f"{sentence.name} (cost {sentence.distance:.3f}{p}): {chosen}")
  return "\n".join(lines)


def rows(view: View) -> list[dict[str, Any]]:
  """Each sentence with its cost, its logit, and pairs of a question word and the one it chose."""
  return [
    {
      "sentence": sentence.name,
      "cost": float(sentence.distance),
      "logit": None if sentence.logit is None else float(sentence.logit),
      "chosen": [[word, sentence.words[j]] for word, j in zip(view.words, sentence.plan.argmax(1))]
      if view.transported
      else None,
    }
    for sentence in view.sentences
    if sentence.words
  ]
