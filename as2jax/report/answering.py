"""Answer or stay silent: calibration, reliability, risk against coverage, WikiQA's answer triggering."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from as2jax.data.datasets import holdout
from as2jax.evaluation import answer_triggering
from as2jax.evaluation.answer_triggering import Triggering
from as2jax.report import axes, markup
from as2jax.report.drawing import Drawing, series
from as2jax.report.runs import Runs, System
from as2jax.runtime.errors import InputError

WIDTH, HEIGHT = 410, 330
LEAD = (
  "Over all questions, those without an answer among them: is the score of a system's best candidate "
  "a reason to give it as the answer?"
)
LEGEND = (
  "The threshold has the greatest F1 on {dev}. Precision: the part of the answers that are right; "
  "recall: the part of the questions with an answer that are answered rightly; ± of F1: 95 % of the "
  "bootstrap over questions. Probabilities by {calibration}, fitted on {dev}; Brier: their mean squared "
  "error; calibration error: over {bins} bins of equal size, whose lines are Wilson's 95 % intervals. "
  "Area: the mean risk over all coverages."
)


class Measured(NamedTuple):
  """One system: its seeds, or why it cannot be measured."""

  system: System
  seeds: tuple[Triggering, ...]
  absent: str


def section(runs: Runs, calibration: str) -> tuple[str, dict[str, Drawing]]:
  """The section and its figures; empty where no question is known."""
  if runs.task != "rerank" or runs.dataset is None or not runs.questions:
    return "", {}
  dev = _selection(runs)
  measured = [_measure(runs, system, dev, calibration) for system in runs.systems]
  shown = [(n, m) for n, m in enumerate(measured) if m.seeds]
  notes = [f"{m.system.label} is not measured: {m.absent}." for m in measured if m.absent]
  if not shown:
    return markup.section("answering", "Answer or stay silent", *map(markup.note, notes)), {}
  figures = {"reliability": reliability(shown), "risk-coverage": risk(shown)}
  grid = "".join(markup.figure(figure.svg(), name=name) for name, figure in figures.items())
  with_answer = sum(bool(question.positives) for question in runs.questions)
  asked = sum(bool(question.candidates) for question in runs.questions)
  counted = f"{asked} questions, {with_answer} of them with an answer. "
  legend = counted + LEGEND.format(
    dev=dev, calibration=_named(calibration), bins=answer_triggering.BINS
  )
  return (
    markup.section(
      "answering",
      "Answer or stay silent",
      f'<div class="grid">{grid}</div>',
      table([m for _, m in shown]),
      markup.note(legend),
      *map(markup.note, notes),
      lead=LEAD,
    ),
    figures,
  )


def _named(calibration: str) -> str:
  return {"platt": "Platt's logistic regression", "isotonic": "isotonic regression"}[calibration]


def _selection(runs: Runs) -> str:
  """The split that selects, of the first run."""
  run = runs.first_run
  return "dev" if run is None else holdout.selection_split({"holdout": 0.0, **run.config["data"]})


def _measure(runs: Runs, system: System, dev: str, calibration: str) -> Measured:
  split = runs.split
  if dev in split.split("+"):
    return Measured(system, (), f"{split} holds the questions on which the threshold is fixed")
  if system.content is None:
    return Measured(system, (), f"its scores on {dev} are not known")
  assert runs.dataset is not None
  if dev not in runs.dataset.splits:
    return Measured(system, (), f"there is no split {dev} on which to fix a threshold")
  before, after = system.rankings(dev), system.rankings(split)
  if not before or not after:
    lacking = split if before else dev
    why = f"it has no run.trec of {lacking}: it was not evaluated there, or that was not kept"
    return Measured(system, (), why)
  questions = runs.dataset.splits[dev]
  try:
    seeds = tuple(
      answer_triggering.measure(
        answer_triggering.best(questions, a),
        answer_triggering.best(runs.questions, b),
        calibration=calibration,
      )
      for a, b in zip(before, after, strict=True)
    )
  except InputError as error:
    return Measured(system, (), str(error))
  return Measured(system, seeds, "")


def table(measured: Sequence[Measured]) -> str:
  """The figures: means over seeds, with their s.d."""
  head = [
    "system",
    "answered",
    "precision",
    "recall",
    "F1",
    "±",
    "area",
    "Brier",
    "calibration error",
  ]
  cells, values = [], []
  for system, seeds, _ in measured:
    numbers = means(seeds)
    spread = np.std([one.f1 for one in seeds], ddof=1) if len(seeds) > 1 else None
    f1 = f"{numbers['f1']:.3f}" + ("" if spread is None else f" (s.d. {spread:.3f})")
    cells.append(
      [
        system.label,
        f"{numbers['answered']:.0f}",
        f"{numbers['precision']:.3f}",
        f"{numbers['recall']:.3f}",
        f1,
        *(f"{numbers[key]:.3f}" for key in ("half_width", "area", "brier", "calibration_error")),
      ]
    )
    values.append([None, *numbers.values()])
  return markup.table(head, cells, values=values)


def means(seeds: Sequence[Triggering]) -> Mapping[str, float]:
  """The mean over seeds of each figure of the table, in its order."""
  names = ("answered", "precision", "recall", "f1", "half_width", "area", "brier")
  return {
    name: float(np.mean([getattr(one, name) for one in seeds]))
    for name in (*names, "calibration_error")
  }


def _frame(
  drawing: Drawing, title: str, below: str, right: float = 1.0, top: float = 1.0
) -> axes.Frame:
  drawing.text(0, 14, title, bold=True)
  frame = axes.Frame((46, 28, WIDTH - 14, HEIGHT - 40), (0.0, right), (0.0, top))
  frame.draw_y(drawing)
  frame.draw_x(drawing, below)
  return frame


def reliability(shown: Sequence[tuple[int, Measured]]) -> Drawing:
  """Right against probability, with intervals; the first seed of each system."""
  said = "; ".join(
    f"{m.system.label}: calibration error {means(m.seeds)['calibration_error']:.3f}"
    for _, m in shown
  )
  drawing = Drawing(
    WIDTH, HEIGHT, "Reliability: the part that is right against the probability", said
  )
  bins = [b for _, m in shown for b in m.seeds[0].bins]
  right = min(max(b.predicted for b in bins) * 1.1 + 0.02, 1.0)
  top = min(max(b.high for b in bins) * 1.05, 1.0)
  frame = _frame(drawing, "right, of answers of like probability", "probability", right, top)
  end = min(right, top)
  drawing.line(
    [(frame.across(0), frame.up(0)), (frame.across(end), frame.up(end))], "muted", dash="4 3"
  )
  for number, one in shown:
    for b in one.seeds[0].bins:
      x = frame.across(b.predicted) + 2 * number
      drawing.line([(x, frame.up(b.low)), (x, frame.up(b.high))], series(number), opacity=0.55)
      tip = f"{b.right:.3f} of {b.questions} questions"
      drawing.circle(x, frame.up(b.right), 3, series(number), tip=tip)
  return drawing


def risk(shown: Sequence[tuple[int, Measured]]) -> Drawing:
  """The part of the answers that is wrong against the part of the questions that is answered."""
  said = "; ".join(f"{m.system.label}: area {means(m.seeds)['area']:.3f}" for _, m in shown)
  drawing = Drawing(WIDTH, HEIGHT, "Risk against coverage", said)
  frame = _frame(
    drawing, "wrong, of the questions answered (risk)", "part of the questions answered"
  )
  for number, one in shown:
    for seed in one.seeds:
      pick = np.unique(np.linspace(0, len(seed.risk) - 1, 200).astype(int))
      points = [
        (frame.across(c), frame.up(r))
        for c, r in zip(seed.coverage[pick].tolist(), seed.risk[pick].tolist(), strict=True)
      ]
      drawing.line(points, series(number), stroke=1.6, opacity=1.0 if len(one.seeds) == 1 else 0.6)
  return drawing
