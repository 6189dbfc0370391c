"""The questions one by one: who wins and loses which, and their candidates side by side."""

import base64
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from as2jax.data.record import Question
from as2jax.report import axes, markup
from as2jax.report.drawing import Drawing, series
from as2jax.report.runs import Ranking, Runs

ROWS = 3000  # of the table; of more questions those that differ most are shown
CHUNK = 40  # questions whose candidates are unpacked together
BUDGET = 600_000  # bytes of all packed candidates
BARS = 1500  # of a waterfall; of more, every so many
WIDTH, HEIGHT = 860, 210


class Row(NamedTuple):
  """One question of the table; `values` are each system's means over seeds, () if not counted."""

  id: str
  text: str
  candidates: int
  positives: int
  values: tuple[float, ...]

  @property
  def difference(self) -> float:
    """The last system's value less the first one's; 0 where there is no second."""
    return self.values[-1] - self.values[0] if len(self.values) > 1 else 0.0


def rows(runs: Runs, metric: str, kept: Collection[str] = ()) -> list[Row]:
  """Every question of the split: those that are counted first, which differ most first.

  Of more than `ROWS` the first, and those of the ids `kept`.
  """
  means = [system.scores.metric(metric).mean(0) for system in runs.systems]
  values = dict(zip(runs.systems[0].scores.ids, np.stack(means, 1).tolist(), strict=True))
  listed = []
  for question in runs.questions or tuple(Question(id, "", ()) for id in values):
    its = tuple(values.get(question.id, ()))
    count = len(question.candidates)
    listed.append(Row(question.id, question.text, count, len(question.positives), its))
  alone = len(runs.systems) == 1
  key = lambda row: (not row.values, row.values[0] if alone and row.values else 0.0)
  listed.sort(key=lambda row: (key(row), -abs(row.difference)))
  return listed[:ROWS] + [row for row in listed[ROWS:] if row.id in kept]


def section(
  runs: Runs,
  metric: str,
  listed: Sequence[Row],
  figures: Mapping[str, Drawing],
  explained: Sequence[str] = (),
) -> str:
  """Waterfalls, the table, and the packed candidates."""
  parts = [markup.figure(figure.svg(), name=name) for name, figure in figures.items()]
  if runs.absent:
    parts.append(markup.note(f"Texts and candidates are not shown: {runs.absent}."))
  total = len(runs.questions) or len(runs.systems[0].scores.ids)
  packed, kept = _packed(runs, listed)
  if len(listed) < total:
    parts.append(
      markup.note(f"{len(listed)} of {total} questions are listed: those that differ most.")
    )
  if runs.questions and kept < len(listed):
    parts.append(
      markup.note(f"The candidates of the first {kept} questions of the table are in the page.")
    )
  parts += [_tools(runs), _table(runs, metric, listed, kept, set(explained)), packed]
  lead = "Choose a question to see its candidates as each system ranks them."
  return markup.section("questions", "Question by question", *parts, lead=lead if kept else "")


def drawings(runs: Runs, metric: str) -> dict[str, Drawing]:
  """{name: waterfall}: of each later system against the first; of one alone, its values."""
  if len(runs.systems) == 1:
    values = runs.systems[0].scores.metric(metric).mean(0)
    title = f"{metric.upper()} of {runs.systems[0].label}, question by question"
    return {"questions": waterfall(values, title, signed=False, number=0)}
  base = runs.systems[0]
  figures = {}
  for number, system in enumerate(runs.systems[1:], 1):
    values = system.scores.metric(metric).mean(0) - base.scores.metric(metric).mean(0)
    title = f"{metric.upper()} of {system.label} − {base.label}, question by question"
    figures[f"waterfall-{number}"] = waterfall(values, title, signed=True, number=number)
  return figures


def waterfall(values: np.ndarray, title: str, *, signed: bool, number: int) -> Drawing:
  """One bar a question, the greatest first."""
  ordered = np.sort(values)[::-1]
  ordered = ordered[:: -(-len(ordered) // BARS)]
  better, worse = (int(np.count_nonzero(s * values > 1e-12)) for s in (1, -1))
  same = len(values) - better - worse
  said = (
    f"{better} better, {same} the same, {worse} worse" if signed else f"{len(values)} questions"
  )
  drawing = Drawing(WIDTH, HEIGHT, title, said)
  drawing.text(0, 15, title, bold=True)
  drawing.text(WIDTH - 12, 15, said, "muted", anchor="end", size=11)
  y = (min(float(ordered.min()), -0.1), max(float(ordered.max()), 0.1)) if signed else (0.0, 1.0)
  frame = axes.Frame((46, 28, WIDTH - 12, HEIGHT - 18), (0, max(len(ordered), 1)), y)
  frame.draw_y(drawing)
  wide = (frame.right - frame.left) / max(len(ordered), 1)
  zero = frame.up(0)
  for n, value in enumerate(ordered.tolist()):
    colour = series(number if value > 0 else 0) if signed else series(number)
    top, end = sorted((zero, frame.up(value)))
    if end - top > 0.05:
      drawing.rect(frame.across(n), top, max(wide - 0.4, 0.3), end - top, colour)
  drawing.line([(frame.left, zero), (frame.right, zero)], "muted")
  middle = (frame.left + frame.right) / 2
  drawing.text(middle, HEIGHT - 4, "questions, sorted", "muted", anchor="middle", size=11)
  return drawing


def _tools(runs: Runs) -> str:
  """Search and filters; they work where the page's program does, and are not printed."""
  choices = [("counted", "counted")]
  if len(runs.systems) > 1:
    choices += [("better", "better"), ("worse", "worse"), ("same", "the same")]
  choices += [("rest", "not counted"), ("", "all")]
  options = "".join(f'<option value="{value}">{text}</option>' for value, text in choices)
  return (
    '<div class="tools" role="search" aria-label="Questions">'
    '<label>Search <input id="search" type="search" autocomplete="off"></label>'
    f'<label>Show <select id="filter">{options}</select></label>'
    '<label><input id="context" type="checkbox"> sentences around</label>'
    '<output id="count" aria-live="polite"></output>'
    '<span class="keys"><kbd>/</kbd> search <kbd>↑</kbd><kbd>↓</kbd> move <kbd>Enter</kbd> open '
    "<kbd>Esc</kbd> close</span></div>"
  )


def _table(runs: Runs, metric: str, listed: Sequence[Row], kept: int, explained: set[str]) -> str:
  labels = [system.label for system in runs.systems]
  numbers = ["candidates", "right", *labels, *(["difference"] if len(labels) > 1 else [])]
  sort = lambda name, side: (
    f'<th scope="col"{side} aria-sort="none"><button type="button">{markup.text(name)}</button></th>'
  )
  head = sort("question", "") + "".join(sort(name, ' class="n"') for name in numbers)
  body = "".join(
    _row(n, row, len(labels), n < kept, row.id in explained) for n, row in enumerate(listed)
  )
  named, title = markup.data(labels), markup.text(metric.upper())
  return (
    f'<div class="scroll tall" tabindex="0"><table id="per-question"><caption>{title} of each '
    f"question; the value of a run is the mean over its seeds</caption><thead><tr>{head}</tr></thead>"
    f'<tbody>{body}</tbody></table></div><script type="application/json" id="labels">{named}</script>'
  )


def _row(number: int, row: Row, systems: int, opens: bool, explained: bool) -> str:
  title = row.text or row.id
  name = f"{markup.text(title)}<small>{markup.text(row.id)}</small>"
  if opens:
    name = f'<button type="button" aria-expanded="false">{name}</button>'
  if explained:
    name += f' <a class="flag" href="#explained-{number}">explained</a>'
  values: list[float | int | None] = [row.candidates or None, row.positives if row.text else None]
  values += list(row.values) or [None] * systems
  cells = [f'<td class="n">{"–" if v is None else v}</td>' for v in values[:2]]
  for value in values[2:]:
    cells.append('<td class="n">–</td>' if value is None else f'<td class="n">{value:.3f}</td>')
  if systems > 1:
    gain, sign = row.difference, ""
    if row.values and abs(gain) > 1e-12:
      sign = "up" if gain > 0 else "down"
    written = f"{gain:+.3f}".replace("-", "−") if row.values else "–"
    cells.append(f'<td class="n {sign}">{written}</td>')
  counted = "" if row.values else " data-rest"
  return f'<tr data-q="{number}"{counted}><th scope="row">{name}</th>{"".join(cells)}</tr>'


def _packed(runs: Runs, listed: Sequence[Row]) -> tuple[str, int]:
  """Script elements of packed candidates, and how many questions they hold."""
  by_id = {question.id: question for question in runs.questions}
  rankings = [system.rankings(runs.split) for system in runs.systems] if by_id else []
  chunks, size, kept = [], 0, 0
  for start in range(0, len(listed) if by_id else 0, CHUNK):
    mine = [by_id[row.id] for row in listed[start : start + CHUNK]]
    written = json.dumps([_candidates(q, rankings) for q in mine], ensure_ascii=False)
    packed = base64.b64encode(zlib.compress(written.encode(), 9)).decode()
    size += len(packed)
    if size > BUDGET:
      break
    chunks.append(f'<script type="text/plain" id="chunk-{start // CHUNK}">{packed}</script>')
    kept += len(mine)
  return "".join(chunks), kept


def _candidates(question: Question, rankings: Sequence[Sequence[Ranking]]) -> dict[str, Any]:
  """What the page shows of one question.

  `t` are its texts; `c` its candidates: id, text, label, previous and next text (numbers in `t`, -1
  for none); `s` of each system, null where it wrote no ranking: `v`, the scores of its first seed
  (infinite ones as texts, for which JSON has no numbers), and `r`, the ranks of each seed, a tied one as "2–4", null of what it did not list.
  """
  texts: dict[str, int] = {}
  place = lambda text: texts.setdefault(text, len(texts)) if text else -1
  rows = [
    [c.id, place(c.text), c.label, place(c.previous), place(c.next)] for c in question.candidates
  ]
  ids = [candidate.id for candidate in question.candidates]
  systems: list[dict[str, Any] | None] = []
  for seeds in rankings:
    its = [seed[question.id] for seed in seeds if question.id in seed]
    if not its or len(its) < len(seeds):
      systems.append(None)
      continue
    scores = [_shown(its[0][id]) if id in its[0] else None for id in ids]
    systems.append({"v": scores, "r": [ranks(one, ids) for one in its]})
  return {"t": list(texts), "c": rows, "s": systems}


def _shown(score: float) -> float | str:
  if np.isfinite(score):
    return float(f"{score:.6g}")
  return "∞" if score > 0 else "−∞"


def ranks(scores: Mapping[str, float], ids: Sequence[str]) -> list[int | str | None]:
  """The rank of each candidate among those that are listed, the greatest score 1.

  Those of equal scores share the range of their ranks, "2–4"; what is not listed has None.
  """
  values = np.asarray(list(scores.values()), np.float64).astype(np.float32)
  result: list[int | str | None] = []
  for id in ids:
    if id not in scores:
      result.append(None)
      continue
    value = np.float32(scores[id])
    above, equal = int((values > value).sum()), int((values == value).sum())
    result.append(above + 1 if equal == 1 else f"{above + 1}–{above + equal}")
  return result
