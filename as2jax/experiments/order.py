"""Ask trained models whether they read an empty place before a candidate as its position (`as2jax lab order`).

Nothing is trained: the same models rank the same questions with other sentences around their candidates. The changes of
logit and rank are paired by question, averaged over seeds; ± is the 95 % half-width over (groups of) questions.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from as2jax.data import neighbours
from as2jax.data.load import load as load_dataset
from as2jax.data.load import require
from as2jax.data.neighbours import Questions
from as2jax.data.record import Question, groups_of
from as2jax.data.text.input_templates import CONTEXT
from as2jax.evaluation import metrics, results, significance, tables
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError

LEGEND = (
  "Changes against the sentences as given: of the first candidate, or of the one whose place was emptied; all, and where "
  "that candidate is right or wrong. A rank below 0 is a rise. MAP counts the questions with an answer, of all candidates."
)


@dataclasses.dataclass(frozen=True)
class Changed:
  """Hold questions with other neighbours, and the place of the candidate that is looked at (−1: none)."""

  title: str
  questions: tuple[Question, ...]
  places: tuple[int, ...]


def changes(questions: Questions) -> list[Changed]:
  """Return the four changes of questions."""
  firsts = (0,) * len(questions)
  return [
    _with_previous("first: a drawn sentence in its empty place", questions, emptied=False),
    _with_previous("a later one: its previous sentence emptied", questions, emptied=True),
    Changed("first: all neighbours drawn", neighbours.drawn(questions), firsts),
    Changed("first: neighbours of a random order", neighbours.permuted(questions), firsts),
  ]


def _with_previous(title: str, questions: Questions, *, emptied: bool) -> Changed:
  """Empty the previous sentence of a random later candidate, or fill the first one's empty place."""
  draw, changed, places = neighbours.Draw(questions), [], []
  for question in questions:
    rng, candidates = neighbours.seeded(title, question), list(question.candidates)
    behind = [i for i, one in enumerate(candidates) if i and one.previous]
    place, text = -1, ""
    if emptied and behind:
      place = rng.choice(behind)
    elif not emptied and not candidates[0].previous:
      place, text = 0, draw(rng, question)
    if place >= 0:
      candidates[place] = neighbours.with_previous(candidates[place], text)
    places.append(place)
    changed.append(dataclasses.replace(question, candidates=tuple(candidates)))
  return Changed(title, tuple(changed), tuple(places))


def measure(run: Run, split: str) -> list[dict[str, str]]:
  """Return a row a change, of the models of a run's seeds on a split; the ledger has a row more.

  InputError: the run reads no neighbours, or its questions are no documents in order.
  """
  template = run.config.model.get("template", "")
  if template not in CONTEXT:
    raise InputError(
      f"{run.folder} reads no sentences around a candidate (model.template = {template!r}): give runs of loct or cassie"
    )
  dataset = load_dataset(run.config.data)
  require(dataset, split.split("+"))
  results.require_unchanged(str(run.folder), run.results, dataset)
  questions = tuple(q for q in dataset.splits[split] if len(q.candidates) > 1)
  sets = [Changed("as given", questions, (0,) * len(questions)), *changes(questions)]
  scores: list[list[Any]] = [[] for _ in sets]  # of each change and seed, one a question
  for seed in run.seeds:
    ranker = run.ranker(seed)
    for number, one in enumerate(sets):
      scores[number].append(next(iter(ranker.all_scores(one.questions).values())))
  results.note_evaluation(run.folder, split, run.seeds, dataset.name, "evaluate")
  return rows(questions, sets, scores)


def rows(questions: Questions, sets: Sequence[Changed], scores: Any) -> list[dict[str, str]]:
  """Return the changes of every set against the first one, as text."""
  _, _, labels = metrics.columns_of(questions)
  groups = np.asarray(groups_of(questions) or range(len(questions)))
  answered = metrics.filter_mask("answerable", labels)
  ap = [[metrics.per_question(one, labels)["map"] for one in of_set] for of_set in scores]
  lines = []
  for number, one in enumerate(sets[1:], 1):
    line = {"change": one.title}
    places = np.asarray(one.places)
    right = np.asarray([int(of[place]) for of, place in zip(labels, places)]) == 1
    looked_at = places >= 0
    logits, ranks = [], []
    for before, after in zip(scores[0], scores[number], strict=True):
      pairs = list(zip(before, after, places, strict=True))
      logits.append([float(b[at]) - float(a[at]) for a, b, at in pairs])
      ranks.append([rankdata(-b)[at] - rankdata(-a)[at] for a, b, at in pairs])
    strata = {"": looked_at, " right": looked_at & right, " wrong": looked_at & ~right}
    for name, chosen in strata.items():
      line[f"n{name}"] = str(int(chosen.sum()))
      for what, values in (("logit", logits), ("rank", ranks)):
        line[f"{what}{name}"] = _mean(np.asarray(values)[:, chosen], groups[chosen])
    moved = np.stack(ap[number]) - np.stack(ap[0])
    line["MAP"] = _mean(moved[:, answered], groups[answered])
    lines.append(line)
  return lines


def _mean(values: np.ndarray, groups: np.ndarray) -> str:
  """Return mean and half-width of [seeds, questions]; "–" of none."""
  if not values.shape[1]:
    return "–"
  width = significance.half_width(values, groups)
  return f"{values.mean():+.3f}" + ("" if width is None else f" ± {width:.3f}")


def run(folders: Sequence[str], splits: Sequence[str], *, allow_code: bool = False) -> str:
  """Return the tables of runs, a run and split after the other, as text."""
  parts = []
  for folder in folders:
    opened = Run(folder, allow_code=allow_code)
    seeds = ", ".join(map(str, opened.seeds))
    for split in splits:
      parts.append(f"{folder}, {split}, seeds {seeds}\n{tables.render(measure(opened, split))}")
  return "\n\n".join([*parts, LEGEND])
