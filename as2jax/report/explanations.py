"""Show why a sentence came first: what each run sees in a question and its candidates.

A grid is the cosine of every word of the question with every word of the candidate, by the run's
token vectors; of models that compare words themselves it is what they compute: M²S-Net's grids of
similarities, one a mode, and CASSIE's transport plan beside the weights of its graph.
"""

import functools
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from as2jax.data.record import Candidate, Question
from as2jax.inference import explain as explaining
from as2jax.inference.explain import Words
from as2jax.inference.run import Run
from as2jax.report.figures import Drawing, series
from as2jax.report.runs import Ranking, Row, Runs
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)
EDGES = "edges of the graph, from column to row"
CELL, LETTER, SLANTED = 22, 6.4, 0.8  # pixels: of a cell, of a letter, of a turned letter's height
WORDS = 40  # of a sentence, in a picture; more are left out, which the caption says
SHADES = 16  # of a cell, from the weakest that is drawn to the strongest


class Shown(NamedTuple):
  """Hold one picture of a system with its caption, or why there is none."""

  system: str
  drawing: Drawing | None
  said: str


Pairs = list[tuple[Candidate, list[Shown]]]


def explain(runs: Runs, rows: Sequence[Row]) -> dict[str, Pairs]:
  """Explain the counted questions of rows by every run that has parameters: {question: its pairs, with pictures}."""
  by_id = {question.id: question for question in runs.questions}
  opened = []
  for number, system in enumerate(runs.systems):
    if system.config and "parameters" in system.content:
      opened.append(_Opened(number, system.label, runs.split, Run(system.place)))
  if not opened or not by_id:
    return {}
  explained: dict[str, Pairs] = {}
  for row in rows:
    if not row.values:
      break
    log.info("explaining %s", row.id)
    question, pairs = by_id[row.id], explained.setdefault(row.id, [])
    for candidate in candidates(question, runs.rankings):
      pictures: list[Shown] = []
      for one in opened:
        pictures += one.pictures(question, candidate)
      pairs.append((candidate, pictures))
  return explained


def candidates(question: Question, rankings: Sequence[Sequence[Ranking]]) -> list[Candidate]:
  """Return the first right candidate, and a wrong one that some system ranks first."""
  right = [question.candidates[n] for n in question.positives[:1]]
  for seeds in rankings if question.candidates else ():
    for ranking in seeds[:1]:
      scores = ranking.get(question.id, {})
      best = max(question.candidates, key=lambda c: scores.get(c.id, -np.inf))
      if best.label != 1:
        return [*right, best]
  return right or list(question.candidates[:1])


class _Opened:
  """Hold a run; its parameters are opened when the first picture is asked for."""

  def __init__(self, number: int, label: str, split: str, run: Run):
    self.number, self.label, self.split, self.run = number, label, split, run

  @functools.cached_property
  def ranker(self) -> Any:
    """Return the ranker of the best seed."""
    return self.run.ranker()

  def pictures(self, question: Question, candidate: Candidate) -> list[Shown]:
    """Return what the run sees in the pair; why not, where it cannot be seen."""
    try:
      name = self.run.config.model.name
      if hasattr(registry.find(registry.MODELS, name, "model.name"), "align"):
        return self._alignment(question, candidate)
      pair, shown = Question(question.id, question.text, (candidate,)), []
      for one in Words(self.run, pair).similarities(self.ranker):
        title = f"{self.label} {one.mode}: {one.score_name} {one.score:.3f}"
        what = "cosine of the words' vectors"
        if one.what != "cosine":
          what = f"the model's own {one.what}"
        shown.append(self._grid(title, one.question, one.candidate, one.values, what))
      return shown
    except (InputError, NotImplementedError) as error:
      return [Shown(self.label, None, " ".join(str(error).split()))]

  def _grid(
    self, title: str, rows: Sequence[str], columns: Sequence[str], values: np.ndarray, what: str
  ) -> Shown:
    return Shown(self.label, grid(title, rows, columns, values, self.number), caption(what, values))

  def _alignment(self, question: Question, candidate: Candidate) -> list[Shown]:
    config, place = self.run.config, 0
    asked = Question(question.id, question.text, (candidate,))
    if config.model.template == "joint":
      asked = explaining.from_data(config, question.id, self.split)
      together = [other.id for other in asked.candidates]
      if candidate.id not in together:
        said = f"this sentence is not among the {len(together)} candidates that it reads together"
        return [Shown(self.label, None, said)]
      place = together.index(candidate.id)
    plans, edges = Words(self.run, asked).alignment(self.ranker)
    plan = plans[place]
    title, what = f"{self.label}: transport plan, cost {plan.score:.3f}", "plan of the words"
    shown = [self._grid(title, plan.question, plan.candidate, plan.values, what)]
    if edges is not None:
      names = [plan.mode for plan in plans]
      shown.append(self._grid(f"{self.label}: graph", names, names, edges, EDGES))
    return shown


def caption(what: str, values: np.ndarray) -> str:
  """Say what the cells of a picture are, and how much the strongest is."""
  said = f"{what}; the strongest is {float(values.max(initial=0.0)):.2f}"
  if values.min(initial=0.0) < -0.5 / SHADES * np.abs(values).max(initial=0.0):
    said += "; grey: below 0"
  if max(values.shape) > WORDS:
    said += f"; the first {WORDS} of {max(values.shape)} words"
  return said


def grid(
  title: str, rows: Sequence[str], columns: Sequence[str], values: np.ndarray, number: int
) -> Drawing:
  """Draw a matrix as cells whose strength is the value, the greatest of each row ringed.

  Values below 0 are grey. Cells of one shade are one path: a page with a dozen matrices stays small.
  """
  rows, columns = list(rows[:WORDS]), list(columns[:WORDS])
  values = np.asarray(values)[: len(rows), : len(columns)]
  left = 12 + LETTER * max(map(len, rows), default=1)
  longest = LETTER * max(map(len, columns), default=1)
  head = 34 + SLANTED * longest
  width = max(left + CELL * len(columns) + 40 + 0.6 * longest, LETTER * len(title) + 20)
  best = values.argmax(1).tolist() if columns else []
  said = [f"{word}: {columns[j]}" for word, j in zip(rows, best)]
  description = "; ".join(said) or "no word"
  drawing = Drawing(width, head + CELL * len(rows) + 8, title, description)
  drawing.text(0, 14, title, bold=True)
  for j, word in enumerate(columns):
    drawing.text(left + CELL * (j + 0.6), head - 6, word, turn=-52, size=11)
  for i, word in enumerate(rows):
    y = head + CELL * i
    drawing.squares([(left, y)], CELL - 1, "grid", wide=CELL * len(columns) - 1, opacity=0.5)
    drawing.text(left - 8, y + CELL * 0.68, word, anchor="end", size=11)
  highest = max(float(np.abs(values).max(initial=0.0)), 1e-9)
  strength = np.rint(values / highest * SHADES).astype(int)
  for shade in np.unique(strength[strength != 0]).tolist():
    places = np.argwhere(strength == shade).tolist()
    corners = [(left + CELL * j, head + CELL * i) for i, j in places]
    colour = series(number) if shade > 0 else "muted"
    drawing.squares(corners, CELL - 1, colour, opacity=round(abs(shade) / SHADES, 2))
  for i, j in enumerate(best):
    tip = f"{rows[i]} – {columns[j]}: {float(values[i, j]):.3f}"
    x, y = left + CELL * j + 7.5, head + CELL * i + 7.5
    drawing.squares([(x, y)], 6, "ink", hollow=True, stroke=1, tip=tip)
  return drawing
