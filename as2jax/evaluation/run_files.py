"""Measure TREC run files of any system, on the data of a run or a data set.

A re-ranking must score every candidate. A retrieval from a pool lists what it found: a question whose
right passages are not listed has the value 0, so that a short list can only lower a metric.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from etils import epath

from as2jax.data import trec_files
from as2jax.data.record import Question
from as2jax.evaluation import metrics, retrieval_metrics
from as2jax.evaluation.retrieval_metrics import Standing
from as2jax.runtime.errors import InputError

ANY = "any:"  # before a metric's name: that of the question filter `any` of a pool
Table = tuple[list[str], dict[str, np.ndarray]]  # as `trec_files.read_per_question` gives it
Run = Mapping[str, Mapping[str, float]]


def is_run_file(path: epath.PathLike) -> bool:
  """Whether the first line of a file has the six fields of a TREC run."""
  lines = trec_files.read_lines(path)
  return bool(lines) and len(lines[0].split()) == 6 and not lines[0].startswith(b"question\t")


def scores(path: epath.PathLike, questions: Sequence[Question], run: Run) -> list[np.ndarray]:
  """Return the float32 scores of every candidate, one array a question.

  Raises:
    InputError: the file lacks a question or a candidate, or ranks one that the question has not.

  """
  found = []
  for question in questions:
    if question.candidates and question.id not in run:
      raise InputError(f"{path}: question {question.id!r} is missing: it ranks other questions")
    ranked = run.get(question.id, {})
    ids = [candidate.id for candidate in question.candidates]
    for what, others in (("lacks", set(ids) - set(ranked)), ("ranks", set(ranked) - set(ids))):
      for id in sorted(others)[:1]:
        raise InputError(
          f"{path}: question {question.id!r}: it {what} the candidate {id!r}: a run file must "
          "rank the question's candidates, all of them and no others"
        )
    found.append(_float32([ranked[id] for id in ids]))
  return found


def of_questions(path: epath.PathLike, questions: Sequence[Question], ties: str) -> Table:
  """Return the table of a re-ranking: see `scores`."""
  ranked = scores(path, questions, trec_files.read_run(path))
  labels, ids, names, counts = [], [], [], []
  for question in questions:
    labels.append(np.asarray([candidate.label for candidate in question.candidates]))
    ids.append([candidate.id for candidate in question.candidates])
    names.append(question.id)
    counts.append((len(labels[-1]), np.count_nonzero(labels[-1] == 1)))
  values = metrics.per_question(ranked, labels, ids, ties=ties, names=names)
  candidates, positives = np.asarray(counts, np.float64).reshape(-1, 2).T
  return names, {"candidates": candidates, "positives": positives, **values}


def of_pool(
  path: epath.PathLike,
  right: Mapping[str, Mapping[str, Collection[str]]],
  asked: Mapping[str, int],
  size: int,
  ties: str,
) -> Table:
  """Return the table of a retrieval from a pool.

  Args:
    right: question filter (`gold`, `any`) -> {question: ids of the right passages}.
    asked: question -> number of questions with its answer.
    size: of the pool.

  Raises:
    InputError: the file lacks a question, lists more passages than the pool has, or no right one.

  """
  run, names = trec_files.read_run(path), list(right["gold"])
  _check_pool(path, run, right, size)
  columns = {
    "candidates": np.full(len(names), float(size)),
    "positives": np.asarray([len(right["gold"][name]) for name in names], np.float64),
    "asked": np.asarray([asked[name] for name in names], np.float64),
  }
  for question_filter, prefix in (("gold", ""), ("any", ANY)):
    standings = [_standing(run[name], right[question_filter][name]) for name in names]
    listed = np.asarray([standing is not None for standing in standings])
    places = Standing(*np.asarray([standing or (0, 0, 1) for standing in standings]).T)
    for metric, values in retrieval_metrics.per_query(places, ties=ties).items():
      columns[prefix + metric] = np.where(listed, values, 0.0)
  return names, columns


def _check_pool(
  path: epath.PathLike, run: Run, right: Mapping[str, Mapping[str, Collection[str]]], size: int
) -> None:
  """Raise InputError where a run cannot be of the pool, whose other ids are not known here."""
  for name in right["gold"]:
    if name not in run:
      raise InputError(f"{path}: question {name!r} is missing: it ranks other questions")
    if len(run[name]) > size:
      raise InputError(
        f"{path}: question {name!r} has {len(run[name])} passages, but the pool has {size}: it ranks "
        "another pool"
      )
  pairs = [(run[name], its[name]) for its in right.values() for name in right["gold"]]
  if all(listed.keys().isdisjoint(ids) for listed, ids in pairs):
    raise InputError(
      f"{path}: no question lists any of its right passages: check that the ids are those of the "
      "pool, as in the run.trec of the run that it is compared with"
    )


def _standing(ranked: Mapping[str, float], right: Collection[str]) -> tuple[int, int, int] | None:
  at = [i for i, id in enumerate(ranked) if id in right]
  return retrieval_metrics.standing(_float32(list(ranked.values())), at) if at else None


def _float32(scores: Sequence[float]) -> np.ndarray:
  with np.errstate(over="ignore"):  # beyond float32 means infinite
    return np.asarray(scores, np.float64).astype(np.float32)
