"""Soft labels: the scores of teachers over training questions, which a ranker then learns from.

A teacher is too sure of the questions that it was trained on: nothing but their labels would be left in
its scores. So a run is asked whether it has seen them, and without other teachers a job is cross-fitted:
trained on all folds of the questions but one, it scores the one that is left.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data import trec_files
from as2jax.data.inputs import teacher_scores
from as2jax.data.inputs.first_stage_ranking import FILE
from as2jax.data.lines import ID, is_id, quoted
from as2jax.data.load import load as load_dataset
from as2jax.data.record import UNKNOWN, Question, fingerprint
from as2jax.data.text import normalise
from as2jax.evaluation import metrics
from as2jax.experiments.working_folder import open_working
from as2jax.inference import open as opening
from as2jax.inference.ranker import Ranker
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.runtime.version import __version__

CARD = "teachers.json"


@dataclasses.dataclass(frozen=True)
class CrossFit:
  """A job that is trained once a fold.

  Attributes:
    job: its name with its words.
    folds: parts of the questions, 2 or more.
    overrides: values of config keys.

  """

  job: str
  folds: int
  overrides: Mapping[str, Any]


def distil(
  questions: Sequence[Question],
  output: epath.PathLike,
  teachers: Sequence[str],
  *,
  cross_fit: CrossFit | None = None,
  allow_seen: bool = False,
  source: str = "",
) -> dict[str, Any]:
  """Write teachers' scores where `data.teachers` finds them (`eval/train/run.trec`), with provenance.

  Args:
    questions: training questions; their labels are read by a cross-fitted job alone.
    output: a new folder.
    teachers: runs, published rankers, run files or JSON-lines; several are averaged
      (`teacher_scores.averaged`).
    cross_fit: a further teacher.
    allow_seen: whether a run may score questions that it was trained on.
    source: of the data, for the provenance.

  Returns:
    The provenance.

  Raises:
    InputError: no teacher, one that was trained on the questions, a pair that one has not scored, a
      folder that holds something else.

  """
  with open_working(output) as (folder, working):
    if not teachers and cross_fit is None:
      raise InputError("no teacher: give --teacher or --cross-fit")
    asked = [question for question in questions if question.candidates]
    if not asked:
      raise InputError(f"{source or 'the data'}: no question has a candidate to score")
    _check(asked, cross_fit, source)  # before hours of scoring
    scored = [_scores_of(teacher, asked, allow_seen) for teacher in teachers]
    if cross_fit is not None:
      provenance = {"cross_fit": cross_fit.job, "folds": cross_fit.folds, **cross_fit.overrides}
      scored.append((_cross_fitted(asked, cross_fit, working), provenance))
    scores = [_finite(np.concatenate(its), provenance) for its, provenance in scored]
    ends = np.cumsum([len(question.candidates) for question in asked])
    soft = np.split(teacher_scores.averaged(scores), ends[:-1])
    ids = [[candidate.id for candidate in question.candidates] for question in asked]
    (folder / "eval" / "train").mkdir(parents=True, exist_ok=True)
    file = folder / "eval" / "train" / FILE
    trec_files.write_run(file, [question.id for question in asked], ids, soft, "teachers")
    content = {
      "as2jax": __version__,
      "teachers": [provenance for _, provenance in scored],
      "data": {"source": source, "fingerprint": fingerprint(questions)},
      "questions": len(asked),
      "pairs": int(ends[-1]),
    }
    write_whole(folder / CARD, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
  return content


def _check(questions: Sequence[Question], cross_fit: CrossFit | None, source: str) -> None:
  """Raise InputError for a wrong number of folds, and ids that no run file can hold."""
  if cross_fit is not None and cross_fit.folds < 2:
    raise InputError(f"folds = {cross_fit.folds}: give 2 or more")
  for question in questions:
    for what, name in (
      ("question_id", question.id),
      *(("candidate_id", candidate.id) for candidate in question.candidates),
    ):
      if not is_id(name):
        raise InputError(f"{source or 'the data'}: {what} is {quoted(name)}; {ID}")


def _finite(scores: np.ndarray, teacher: Mapping[str, Any]) -> np.ndarray:
  """Return the scores; raise InputError where one is not finite."""
  if not np.isfinite(scores).all():
    raise InputError(f"the teacher {dict(teacher)} gave a score that is not finite")
  return scores


def _scores_of(
  teacher: str, questions: Sequence[Question], allow_seen: bool
) -> tuple[list[np.ndarray], dict[str, Any]]:
  """Return the scores of each question's candidates, and which teacher gave them."""
  path = epath.Path(teacher).expanduser()
  if path.exists() and not path.is_dir():
    read = teacher_scores.read_scores(path)
    scores = [
      np.asarray(
        [teacher_scores.score_of(teacher, read, q, i) for i in range(len(q.candidates))], np.float64
      )
      for q in questions
    ]
    return scores, {"file": teacher}
  ranker = opening.load(teacher)
  ranker.require_ranking()
  seen = None if ranker.seed is None else _seen(teacher, questions)
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


def _seen(teacher: str, questions: Sequence[Question]) -> int:
  """Count the questions that a run, or one that it was begun from, was trained on."""
  run, left = Run(epath.Path(teacher).expanduser()), list(questions)
  while True:
    known = _trained_on(run)
    asked = [Question(question.id, question.text, ()) for question in left]
    # A run's questions are those of its text rules.
    ruled = normalise.apply(asked, run.config.data.rules)
    left = [question for question, its in zip(left, ruled, strict=True) if its.text not in known]
    first = run.config.warm_start.run
    if not first:
      return len(questions) - len(left)
    try:
      run = Run(first)
    except InputError as error:
      raise InputError(
        f"whether {first}, from which the teacher {teacher} was begun, was trained on these questions "
        f"cannot be told ({error}); say --allow-seen where it was not"
      ) from error


def _trained_on(run: Run) -> frozenset[str]:
  """Return the texts of a run's training questions under its text rules; none where it took no step.

  Questions that its `data.train_filter` left out are not: a run of answerable questions may score the
  others of the same file.

  Raises:
    InputError: the run's data are not here, so that nobody can tell.

  """
  if not any(outcome["steps"] for outcome in run.results["seeds"]):
    return frozenset()
  try:
    train = load_dataset(run.config.data, run.config.evaluation.task).splits["train"]
  except InputError as error:
    raise InputError(
      f"whether {run.folder} was trained on these questions cannot be told, as its data are "
      f"not here ({error}); say --allow-seen where it was not"
    ) from error
  labels = [np.asarray([candidate.label for candidate in q.candidates]) for q in train]
  kept = metrics.filter_mask(run.config.data.train_filter, labels)
  return frozenset(question.text for question, its in zip(train, kept, strict=True) if its)


def fold_of(question: Question, folds: int) -> int:
  """Return the fold of a question: by its text, so that equal questions are never apart."""
  return int(hashlib.sha256(question.text.encode()).hexdigest(), 16) % folds


def _cross_fitted(
  questions: Sequence[Question], cross_fit: CrossFit, working: epath.Path
) -> list[np.ndarray]:
  """Score each question by a teacher that was trained on the other folds."""
  folds = [fold_of(question, cross_fit.folds) for question in questions]
  scores: list[np.ndarray] = [np.zeros(0)] * len(questions)
  for fold in range(cross_fit.folds):
    here = [i for i, its in enumerate(folds) if its == fold]
    others = [questions[i] for i, its in enumerate(folds) if its != fold]
    if not here or not any(question.positives for question in others):
      raise InputError(
        f"fold {fold + 1} of {cross_fit.folds} leaves {len(here)} questions to score and "
        f"{sum(bool(q.positives) for q in others)} with an answer to train on; give fewer folds"
      )
    # Stopped and begun again on other questions or folds, it is another teacher.
    folder = working / f"fold-{fold}-{fingerprint(others)[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "train.jsonl", "".join(map(_lines, others)))
    run = opening.train(
      cross_fit.job,
      str(folder / "run"),
      data={"train": str(folder / "train.jsonl")},
      overrides=cross_fit.overrides,
    )
    for i, values in zip(here, _of_ranker(run.ranker(), [questions[i] for i in here]), strict=True):
      scores[i] = values
  return scores


def _lines(question: Question) -> str:
  """Return a question's labelled candidates as lines of a user's own file."""
  rows = [
    {
      "question_id": question.id,
      "question": question.text,
      "candidate_id": candidate.id,
      "candidate": candidate.text,
      "label": candidate.label,
      **{name: getattr(candidate, name) for name in ("previous", "next", "title")},
    }
    for candidate in question.candidates
    if candidate.label != UNKNOWN
  ]
  return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
