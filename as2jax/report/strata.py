"""Where a system wins: its values on parts of the questions, by what a question is like."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from as2jax.data.record import Question
from as2jax.data.text.stop_words import STOP_WORDS
from as2jax.data.text.words import plain_words
from as2jax.evaluation import significance
from as2jax.report import axes, markup
from as2jax.report.drawing import Drawing, series
from as2jax.report.runs import Runs

WORDS = ("who", "whose", "whom", "what", "which", "when", "where", "why", "how")
AMOUNT = re.compile(r"\bhow (many|much|long|old|far|big|tall|high|large|often|fast|deep)\b", re.I)
ROW, WIDTH, LEFT, RIGHT = 19, 860, 300, 150


class Stratum(NamedTuple):
  """Some questions: `by` what they are parted, their `name`, and their places among the counted."""

  by: str
  name: str
  at: np.ndarray


class Value(NamedTuple):
  """The mean over a stratum's questions, with its 95 % half-width (None of one question)."""

  mean: float
  half_width: float | None


def strata(questions: Sequence[Question], *, pool: bool = False) -> list[Stratum]:
  """All strata of the questions; each way of parting puts every question into one of them.

  Args:
    pool: whether all questions have one pool of candidates, so that their number parts nothing.

  """
  numbers = {"words of the question": [len(plain_words(q.text)) for q in questions]}
  if not pool:
    numbers["candidates"] = [len(q.candidates) for q in questions]
  parts = _parted("question word", questions, question_word, (*WORDS, "how many …", "other"))
  for by, values in numbers.items():
    parts += _thirds(by, values)
  named = lambda q: _overlap_name(overlap(q))
  parts += _parted("words shared with the answer", questions, named, tuple(_OVERLAPS))
  around = lambda q: "with" if context(q) else "without"
  return parts + _parted("sentences around the answer", questions, around, ("with", "without"))


def question_word(question: Question) -> str:
  """The first of `WORDS` in the question, "how many …" where it asks for an amount, or `other`."""
  if AMOUNT.search(question.text):
    return "how many …"
  return next((word for word in plain_words(question.text) if word in WORDS), "other")


def overlap(question: Question) -> float:
  """The part of the question's words, without stop words, that a right candidate has; the greatest."""
  asked = set(plain_words(question.text)) - STOP_WORDS
  right = [set(plain_words(question.candidates[n].text)) for n in question.positives]
  return max((len(asked & words) / max(len(asked), 1) for words in right), default=0.0)


def context(question: Question) -> bool:
  """Whether a right candidate has a sentence before or after it."""
  return any(
    question.candidates[n].previous or question.candidates[n].next for n in question.positives
  )


_OVERLAPS = ("none", "up to a third", "up to two thirds", "more than two thirds")


def _overlap_name(part: float) -> str:
  return _OVERLAPS[0 if part == 0 else 1 if part <= 1 / 3 else 2 if part <= 2 / 3 else 3]


def _parted(
  by: str, questions: Sequence[Question], name: Callable[[Question], str], order: Sequence[str]
) -> list[Stratum]:
  names = [name(question) for question in questions]
  places = {one: np.flatnonzero([other == one for other in names]) for one in order}
  return [Stratum(by, one, at) for one, at in places.items() if len(at)]


def _thirds(by: str, values: Sequence[int]) -> list[Stratum]:
  """Three parts of about equal size, each a range of values; fewer where values repeat."""
  numbers = np.asarray(values)
  low, high = (int(x) for x in np.quantile(numbers, [1 / 3, 2 / 3], method="inverted_cdf"))
  parts = {
    f"up to {low}": numbers <= low,
    (f"{low + 1} to {high}" if high > low + 1 else f"{high}"): (numbers > low) & (numbers <= high),
    f"more than {high}": numbers > high,
  }
  return [Stratum(by, name, np.flatnonzero(its)) for name, its in parts.items() if its.any()]


def value(values: np.ndarray, at: np.ndarray) -> Value:
  """Mean and half-width of the values `[questions]` at some questions."""
  return Value(float(values[at].mean()), significance.half_width(values[at]))


def section(runs: Runs, metric: str) -> tuple[str, dict[str, Drawing]]:
  """The section and its figures; empty where the questions' texts are not known."""
  by_id = {question.id: question for question in runs.questions}
  ids = runs.systems[0].scores.ids
  if not all(id in by_id for id in ids):
    return "", {}
  parts = strata([by_id[id] for id in ids], pool=runs.task == "retrieve")
  means = [system.scores.metric(metric).mean(0) for system in runs.systems]
  alone = len(means) == 1
  shown = {0: means[0]} if alone else {n: m - means[0] for n, m in enumerate(means) if n}
  what = metric.upper() if alone else f"{metric.upper()}, difference to {runs.systems[0].label}"
  figure = drawing(runs, parts, shown, what)
  told = (
    "Lines are 95 % half-widths of each part alone; with so many parts some lie off zero by chance."
  )
  return (
    markup.section(
      "strata",
      "Kinds of questions",
      markup.figure(figure.svg(), told, "strata"),
      markup.details("Figures of each kind", table(runs, parts, means, metric)),
    ),
    {"strata": figure},
  )


def drawing(
  runs: Runs, parts: Sequence[Stratum], shown: dict[int, np.ndarray], what: str
) -> Drawing:
  """One line a stratum and system: mean and half-width."""
  by_mark = {(n, k): value(v, s.at) for n, v in shown.items() for k, s in enumerate(parts)}
  groups = list(dict.fromkeys(part.by for part in parts))
  step = ROW + 8 * (len(shown) - 1)
  height = 30 + len(parts) * step + len(groups) * 20 + 34
  said = "; ".join(f"{parts[k].by} {parts[k].name}: {v.mean:.3f}" for (_, k), v in by_mark.items())
  figure = Drawing(WIDTH, height, f"{what}, by kind of question", said)
  ends = [v.mean + s * (v.half_width or 0.0) for v in by_mark.values() for s in (-1, 1)]
  low, high = axes.spread(ends) if len(runs.systems) > 1 else (0.0, 1.0)
  limits = (max(min(low, 0.0), -1.0), min(max(high, 0.0), 1.0))
  frame = axes.Frame((LEFT, 14, WIDTH - RIGHT, height - 34), limits, (0, 1))
  frame.draw_x(figure, what, grid=True)
  if limits[0] < 0 < limits[1]:
    figure.line([(frame.across(0), 14), (frame.across(0), height - 34)], "muted")
  y, before = 14.0, ""
  for k, part in enumerate(parts):
    if part.by != before:
      y += 20
      figure.text(0, y + 4, part.by, bold=True)
      before = part.by
    figure.text(LEFT - 14, y + 4, f"{part.name}  ({len(part.at)})", anchor="end")
    for line, number in enumerate(shown):
      _mark(figure, frame, y + 8 * line, by_mark[number, k], number)
    if len(shown) == 1:
      one = by_mark[next(iter(shown)), k]
      width = "" if one.half_width is None else f" ± {one.half_width:.3f}"
      sign = "+" if len(runs.systems) > 1 else ""
      written = f"{one.mean:{sign}.3f}{width}".replace("-", "−")
      figure.text(WIDTH - RIGHT + 14, y + 4, written)
    y += step
  return figure


def _mark(figure: Drawing, frame: axes.Frame, y: float, one: Value, number: int) -> None:
  if one.half_width is not None:
    ends = (one.mean + s * one.half_width for s in (-1, 1))
    low, high = (frame.across(min(max(x, frame.x[0]), frame.x[1])) for x in ends)
    figure.line([(low, y), (high, y)], series(number), stroke=1.6)
  figure.circle(frame.across(one.mean), y, 3.6, series(number), tip=f"{one.mean:.3f}")


def table(runs: Runs, parts: Sequence[Stratum], means: Sequence[np.ndarray], metric: str) -> str:
  """Every stratum: its questions, each system's mean, differences to the first with half-widths."""
  others = range(1, len(means))
  head = ["by", "kind", "questions", *(system.label for system in runs.systems)]
  head += [f"{runs.systems[n].label} − {runs.systems[0].label}" for n in others]
  rows = []
  for part in parts:
    cells = [part.by, part.name, str(len(part.at))]
    cells += [f"{value(mean, part.at).mean:.3f}" for mean in means]
    for n in others:
      one = value(means[n] - means[0], part.at)
      width = "" if one.half_width is None else f" ± {one.half_width:.3f}"
      cells.append(f"{one.mean:+.3f}{width}".replace("-", "−"))
    rows.append(cells)
  return markup.table(head, rows, left=2, caption=metric.upper())
