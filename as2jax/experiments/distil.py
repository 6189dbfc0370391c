"""Soft labels: the scores of teachers over training questions, which a ranker then learns from.

A teacher is too sure of the questions that it was trained on: nothing but their labels would be left in
its scores. So a run is asked whether it has seen them, and without other teachers a job is cross-fitted:
trained on all folds of the questions but one, it scores the one that is left.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from etils import epath

from as2jax.data import trec_files
from as2jax.data.inputs import rankings
from as2jax.data.inputs.rankings import FILE
from as2jax.data.lines import ID, is_id, quoted
from as2jax.data.load import load as load_dataset
from as2jax.data.record import UNKNOWN, Question, fingerprint
from as2jax.data.text import normalise
from as2jax.evaluation import metrics
from as2jax.inference import open as opening
from as2jax.inference.ranker import Ranker
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import open_working, write_whole
from as2jax.runtime.version import __version__

CARD = "teachers.json"


def distil(
  questions: Sequence[Question],
  output: epath.PathLike,
  teachers: Sequence[str],
  *,
  cross_fit: str = "",
  folds: int = 2,
  overrides: Mapping[str, Any] = MappingProxyType({}),
  allow_seen: bool = False,
  source: str = "",
  allow_code: bool = False,
  label: str | int | None = None,
) -> dict[str, Any]:
  """Write teachers' scores where `data.teachers` finds them (`eval/train/run.trec`); return their provenance.

  Args:
    questions: training questions; their labels are read by a cross-fitted job alone.
    output: a new folder.
    teachers: runs, published rankers, run files or JSON-lines; several are averaged.
    cross_fit: a further teacher, a job (its name with its words) that is trained once a fold of the
      questions, 2 or more, with these `overrides`.
    allow_seen: whether a run may score questions that it was trained on.
    source: of the data, for the provenance.
    allow_code, label: of the teachers, the second of those that are no runs; see `as2jax.load`.

  Raises:
    InputError: no teacher, one that was trained on the questions, a pair that one has not scored.

  """
  where = source or "the data"
  with open_working(output) as (folder, working):
    if not teachers and not cross_fit:
      raise InputError("no teacher: give --teacher or --cross-fit")
    asked = [question for question in questions if question.candidates]
    if not asked:
      raise InputError(f"{where}: no question has a candidate to score")
    ids = [[candidate.id for candidate in question.candidates] for question in asked]
    for question, its in zip(asked, ids, strict=True):
      for name in (question.id, *its):
        if not is_id(name):  # before hours of scoring
          raise InputError(
            f"{where}: the id {quoted(name)} cannot be written into a run file; {ID}"
          )
    scores, facts = [], []
    for teacher in teachers:
      found, fact = _scores_of(teacher, asked, allow_seen, allow_code, label)
      scores.append(np.concatenate(found))
      facts.append(fact)
    if cross_fit:
      scores.append(np.concatenate(_cross_fitted(asked, cross_fit, folds, overrides, working)))
      facts.append({"cross_fit": cross_fit, "folds": folds, **overrides})
    ends = np.cumsum(list(map(len, ids)))
    soft = np.split(rankings.averaged(scores), ends[:-1])
    names = [question.id for question in asked]
    trec_files.write_run(folder / "eval" / "train" / FILE, names, ids, soft, "teachers")
    content = {
      "as2jax": __version__,
      "teachers": facts,
      "data": {"source": source, "fingerprint": fingerprint(questions)},
      "questions": len(asked),
      "pairs": int(ends[-1]),
    }
    write_whole(folder / CARD, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
  return content


def _scores_of(
  teacher: str,
  questions: Sequence[Question],
  allow_seen: bool,
  allow_code: bool,
  label: str | int | None,
) -> tuple[list[np.ndarray], dict[str, Any]]:
  path = epath.Path(teacher).expanduser()
  if path.exists() and not path.is_dir():
    read, scores = rankings.read_scores(path), []
    for q in questions:
      of_question = [rankings.score_of(teacher, read, q, i) for i in range(len(q.candidates))]
      scores.append(np.asarray(of_question, np.float64))
    return scores, {"file": teacher}
  of_published = None if opening.is_run(path) else label
  ranker = opening.load(teacher, allow_code=allow_code, label=of_published)
  ranker.require_ranking()
  seen = None if ranker.seed is None else _seen(teacher, questions, allow_code)
  if seen and not allow_seen:
    raise InputError(
      f"the teacher {teacher} was trained on {seen} of these {len(questions)} questions, and its scores "
      "of them say little more than their labels: cross-fit it (--cross-fit=JOB), give other questions, "
      "or say --allow-seen"
    )
  fact = {"ranker": teacher, "seed": ranker.seed, "fingerprint": ranker.fingerprint, "seen": seen}
  return _of_ranker(ranker, questions), fact


def _of_ranker(ranker: Ranker, questions: Sequence[Question]) -> list[np.ndarray]:
  return [np.asarray(x, np.float64) for x in next(iter(ranker.all_scores(questions).values()))]


def _seen(teacher: str, questions: Sequence[Question], allow_code: bool = False) -> int:
  folder, seen = str(epath.Path(teacher).expanduser()), np.zeros(len(questions), bool)
  asked = [Question(question.id, question.text, ()) for question in questions]
  while folder:
    try:
      run = Run(folder, allow_code=allow_code)
      known = _trained_on(run)
    except InputError as error:
      raise InputError(
        f"whether {folder} (the teacher {teacher}, or what it was begun from) was trained on these "
        f"questions cannot be told ({error}); say --allow-seen where it was not"
      ) from error
    # A run's questions are those of its text rules.
    ruled = normalise.apply(asked, run.config.data.rules)
    seen |= [question.text in known for question in ruled]
    folder = run.config.warm_start.run
  return int(seen.sum())


def _trained_on(run: Run) -> set[str]:
  """Return the texts of a run's training questions under its text rules; none where it took no step.

  Questions that its `data.train_filter` left out are not: a run of answerable questions may score the
  others of the same file.
  """
  if not any(outcome["steps"] for outcome in run.results["seeds"]):
    return set()
  train = load_dataset(run.config.data, run.config.evaluation.task).splits["train"]
  _, _, labels = metrics.columns_of(train)
  kept = metrics.filter_mask(run.config.data.train_filter, labels)
  return {train[i].text for i in np.flatnonzero(kept)}


def _cross_fitted(
  questions: Sequence[Question],
  job: str,
  folds: int,
  overrides: Mapping[str, Any],
  working: epath.Path,
) -> list[np.ndarray]:
  """Score each question by a teacher that was trained on the other folds."""
  scores: dict[int, np.ndarray] = {}
  for fold in range(folds):
    here, others = [], []
    for i, question in enumerate(questions):
      # By the text, so that equal questions are never apart.
      number = int(hashlib.sha256(question.text.encode()).hexdigest(), 16)
      if number % folds == fold:
        here.append(i)
      else:
        others.append(question)
    answered = sum(bool(question.positives) for question in others)
    if not here or not answered:
      raise InputError(
        f"fold {fold + 1} of {folds} leaves {len(here)} questions to score and {answered} "
        "with an answer to train on; give fewer folds"
      )
    # Stopped and begun again on other questions or folds, it is another teacher.
    folder = working / f"fold-{fold}-{fingerprint(others)[:12]}"
    write_whole(folder / "train.jsonl", "".join(map(_lines, others)))
    run = opening.train(
      job, str(folder / "run"), data={"train": str(folder / "train.jsonl")}, overrides=overrides
    )
    found = _of_ranker(run.ranker(), [questions[i] for i in here])
    scores.update(zip(here, found, strict=True))
  return list(map(scores.get, range(len(questions))))


def _lines(question: Question) -> str:
  """Return a question's labelled candidates as lines of a user's own file."""
  lines = ""
  for candidate in question.candidates:
    if candidate.label != UNKNOWN:
      row = {"question_id": question.id, "question": question.text, "candidate_id": candidate.id}
      row |= {"candidate": candidate.text, "label": candidate.label}
      row |= {"previous": candidate.previous, "next": candidate.next, "title": candidate.title}
      lines += json.dumps(row, ensure_ascii=False) + "\n"
  return lines
