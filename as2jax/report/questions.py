"""List the questions one by one: who wins and loses which, their candidates side by side."""

import base64
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from as2jax.data.record import Question
from as2jax.report.runs import Ranking, Runs

ROWS = 3000  # of the table; of more questions those that differ most are shown
CHUNK = 40  # questions whose candidates are unpacked together
BUDGET = 600_000  # bytes of all packed candidates


class Row(NamedTuple):
  """Hold one question of the table."""

  id: str
  text: str
  candidates: int
  positives: int  # how many of them are right
  values: tuple[float, ...]  # each system's mean over seeds, () of a question that is not counted

  @property
  def difference(self) -> float:
    """Return the last system's value less the first one's; 0 where there is no second."""
    return self.values[-1] - self.values[0] if len(self.values) > 1 else 0.0

  @property
  def sign(self) -> str:
    """Return `up`, `down`, or "" where nothing differs."""
    if abs(self.difference) <= 1e-12:
      return ""
    return "up" if self.difference > 0 else "down"


def rows(runs: Runs, metric: str, wanted: Collection[str] = ()) -> list[Row]:
  """Return every question of the split: those that are counted first, which differ most first.

  Of more than `ROWS` the first, and those of the ids `wanted`.
  """
  means = np.stack([system.scores.metric(metric).mean(0) for system in runs.systems], 1)
  values = dict(zip(runs.systems[0].scores.ids, means.tolist(), strict=True))
  listed = []
  for question in runs.questions or [Question(id, "", ()) for id in values]:
    of_question, count = tuple(values.get(question.id, ())), len(question.candidates)
    right = len(question.positives)
    listed.append(Row(question.id, question.text, count, right, of_question))

  if len(runs.systems) == 1:
    listed.sort(key=lambda row: row.values)
  listed.sort(key=lambda row: (not row.values, -abs(row.difference)))
  return listed[:ROWS] + [row for row in listed[ROWS:] if row.id in wanted]


def packed(runs: Runs, listed: Sequence[Row]) -> tuple[list[str], int]:
  """Return the candidates of the questions in chunks, and how many questions they hold.

  A chunk is JSON (`shown`) of `CHUNK` questions, compressed (deflate) and written in base64.
  """
  by_id = {question.id: question for question in runs.questions}
  if not by_id:
    return [], 0
  rankings = runs.rankings()
  chunks: list[str] = []
  for start in range(0, len(listed), CHUNK):
    part = [shown(by_id[row.id], rankings) for row in listed[start : start + CHUNK]]
    written = json.dumps(part, ensure_ascii=False).encode()
    chunk = base64.b64encode(zlib.compress(written, 9)).decode()
    if sum(map(len, chunks)) + len(chunk) > BUDGET:
      return chunks, start
    chunks.append(chunk)
  return chunks, len(listed)


def shown(question: Question, rankings: Sequence[Sequence[Ranking]]) -> dict[str, Any]:
  """Return what the page shows of one question.

  `c` are its candidates: id, text, label; `s` of each system, null where it wrote no ranking: `v`,
  the scores of its first seed (infinite ones as texts, for which JSON has no numbers), and `r`, the
  ranks of each seed, a tied one as "2–4", null of what it did not list.
  """
  candidates, systems = [[one.id, one.text, one.label] for one in question.candidates], []
  ids = [candidate.id for candidate in question.candidates]
  for seeds in rankings:
    if not seeds or not all(question.id in seed for seed in seeds):
      systems.append(None)
      continue
    first = seeds[0][question.id]
    scores = [_score(first[id]) if id in first else None for id in ids]
    systems.append({"v": scores, "r": [ranks(seed[question.id], ids) for seed in seeds]})
  return {"c": candidates, "s": systems}


def _score(score: float) -> float | str:
  if np.isfinite(score):
    return float(f"{score:.6g}")
  return "∞" if score > 0 else "−∞"


def ranks(scores: Mapping[str, float], ids: Sequence[str]) -> list[int | str | None]:
  """Return the rank of each candidate among those that are listed, the greatest score 1.

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
