"""Evaluate a split: `rerank` each question's own candidates, or `retrieve` from one pool.

Both tasks have the split (`selection`) and the metric (`selector`) that select the best checkpoint,
`measure` for selection and `record`, which also writes a split's files.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data import holdout, trec_files
from as2jax.data.dataset import Dataset
from as2jax.data.record import Question
from as2jax.data.retrieval import Retrieval
from as2jax.evaluation import metrics, results, retrieval_metrics, retrieve
from as2jax.evaluation.results import Evaluation, Outcome
from as2jax.runtime import processes
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)
NO_CHOICE = (
  "no question has both a right and a wrong candidate, so that every ranking has the same metrics: add "
  "candidates with label 0, or rank one pool of all candidates (evaluation.task=retrieve)"
)


def columns_of(
  questions: Sequence[Question],
) -> tuple[list[str], list[list[str]], list[np.ndarray]]:
  """Return the ids of questions, and the ids and labels of each one's candidates."""
  names, ids, labels = [], [], []
  for question in questions:
    names.append(question.id)
    ids.append([candidate.id for candidate in question.candidates])
    labels.append(np.asarray([candidate.label for candidate in question.candidates]))
  return names, ids, labels


def evaluate(
  scores: Sequence[np.ndarray],
  data: Dataset,
  split: str,
  *,
  ties: str,
  questions: Sequence[Question] = (),
) -> Evaluation:
  """Measure one ranking of a split under every question filter that leaves a question.

  Args:
    scores: one float32 array a question, higher is better.
    questions: those of the split that are ranked; all of it where not given.

  """
  questions = questions or data.splits[split]
  names, ids, labels = columns_of(questions)
  per_question = metrics.per_question(scores, labels, ids, ties=ties, names=names)
  extremes = metrics.tie_extremes(scores, labels, names=names)
  found = Evaluation({}, {}, per_question, [])
  for question_filter, rule in metrics.filters(data.clean, data.official).items():
    mask = metrics.filter_mask(rule, labels)
    if not mask.any():
      continue
    where = f"{data.name}-{question_filter}/{split}"
    found.add(where, mask, per_question, extremes, noted=question_filter == "clean")
    if question_filter == "clean" and has_no_choice(questions):
      found.notes.append(f"{where}: {NO_CHOICE}")
    if data.average_recall and rule == data.official:
      recall = metrics.average_recall(scores, labels, mask=mask)
      # A ratio of sums over questions has no half-width.
      entry = {"value": recall, "half_width": None, "questions": int(mask.sum())}
      found.metrics[f"avgrec[{where}]"] = entry
  answerable = [values for values, right in zip(scores, labels, strict=True) if (right == 1).any()]
  found.scalars[f"spread_within_questions[{split}]"] = spread_within(answerable)
  return found


def spread_within(scores: Sequence[np.ndarray]) -> float:
  """Return the part of the scores' standard deviation that lies within questions, 0 to 1.

  Near 0, a ranker tells questions apart in place of their candidates; 0 where all are equal.
  """
  every = np.concatenate([*scores, np.zeros(0)]).astype(np.float64)
  if not np.isfinite(every).all():  # those of a run file
    return float("nan")
  total = every.std() if len(every) else 0.0
  if not total:
    return 0.0
  within = np.concatenate([values - values.mean() for values in scores if len(values)])
  return float(np.sqrt(np.mean(np.square(within, dtype=np.float64))) / total)


def has_no_choice(questions: Sequence[Question]) -> bool:
  """Whether questions with a right candidate have right ones alone, so that all rankings are equal."""
  answered = [question for question in questions if question.positives]
  return all(len(q.positives) == len(q.candidates) for q in answered) and bool(answered)


def write(
  folder: epath.PathLike,
  evaluation: Evaluation,
  scores: Sequence[np.ndarray],
  questions: Sequence[Question],
  *,
  tag: str,
) -> None:
  """Write `run.trec`, `qrels.trec` and `per_question.tsv` into `folder`."""
  folder = epath.Path(folder)
  if processes.first():
    folder.mkdir(parents=True, exist_ok=True)
  names, ids, labels = columns_of(questions)
  trec_files.write_per_question(folder / "per_question.tsv", names, labels, evaluation.per_question)
  ranked, their_scores = [], []
  for question, values in zip(questions, scores, strict=True):
    if question.candidates:
      ranked.append(question)
      their_scores.append(values)
  names, ids, labels = columns_of(ranked)
  trec_files.write_run(folder / "run.trec", names, ids, their_scores, tag)
  trec_files.write_qrels(folder / "qrels.trec", names, ids, labels)


class _Task:
  """Share what both tasks have."""

  selector: str

  def __init__(self, config: Any, data: Any):
    self.config, self.data = config, data
    self.selection = holdout.selection_split(config.data)
    self.measured = list(config.evaluation.splits)
    if config.mode == "train":
      self.measured = list(dict.fromkeys((self.selection, *self.measured)))

  def _recorded(
    self, workdir: epath.PathLike, split: str, outcome: Outcome, number: int, name: str, measured
  ) -> epath.Path:
    """Add one score's evaluation to an outcome (the first ranks); return the folder of its files."""
    outcome.add(name, measured, primary=number == 0)
    return results.folder(workdir, split, outcome.seed, self.config.seeds, name if number else "")

  def _note(self, workdir: epath.PathLike, split: str, outcomes: Sequence[Outcome]) -> None:
    seeds = [outcome.seed for outcome in outcomes]
    results.note_evaluation(workdir, split, seeds, self.data.name, self.config.mode)


class Rerank(_Task):
  """Rank every question's own candidates; log the splits of which all rankings are equal."""

  def __init__(self, config: Any, data: Dataset, predictor: Any):
    super().__init__(config, data)
    self.predictor = predictor
    self.selector = f"{config.select}[{data.name}-clean/{self.selection}]"
    for split in self.measured:
      if split in data.splits and has_no_choice(data.splits[split]):
        log.warning("%s, %s: %s", data.name, split, NO_CHOICE)

  def measure(self, variables: Any, split: str) -> list[Evaluation]:
    """Return one evaluation a seed of the variables, by the score that ranks.

    Questions without a right answer (if others have one) are worth 0, and not predicted. Scalars have
    what the other scores give of the metric that selects.
    """
    every, by_seed = self.data.splits[split], []
    asked = [i for i, question in enumerate(every) if question.positives] or range(len(every))
    for scores in self.predictor(variables, tuple(every[i] for i in asked)):
      measured: list[Evaluation] = []
      for name, values in scores.items():
        filled = [np.zeros(len(question.candidates), np.float32) for question in every]
        for number, of_question in zip(asked, values, strict=True):
          filled[number] = of_question
        one = evaluate(filled, self.data, split, ties=self.config.evaluation.ties)
        if measured and self.selector in one.metrics:
          value = one.metrics[self.selector]["value"]
          measured[0].scalars[f"{self.selector} by {name}"] = value
        measured.append(one)
      by_seed.append(measured[0])
    return by_seed

  def record(
    self, workdir: epath.PathLike, variables: Any, split: str, outcomes: Sequence[Outcome]
  ) -> None:
    """Measure every score of a split, write its files, add it to the outcome of each seed."""
    questions = self.data.splits[split]
    by_seed = self.predictor(variables, questions)
    for outcome, scores in zip(outcomes, by_seed, strict=True):
      for number, (name, values) in enumerate(scores.items()):
        found = evaluate(values, self.data, split, ties=self.config.evaluation.ties)
        folder = self._recorded(workdir, split, outcome, number, name, found)
        write(folder, found, values, questions, tag=f"as2jax-{name}")
    self._note(workdir, split, outcomes)


class Retrieve(_Task):
  """Rank one pool for all queries, in the way that the system can."""

  def __init__(self, config: Any, data: Retrieval, predictor: Any):
    super().__init__(config, data)
    for key, value, known in (
      ("select", config.select, retrieval_metrics.METRICS),
      ("evaluation.ties", config.evaluation.ties, retrieval_metrics.TIES),
    ):
      if value not in known:
        raise InputError(f"{key} = {value!r}: over a pool use one of {', '.join(known)}")
    self.selector = f"{config.select}[{data.name}-gold/{self.selection}]"
    for split in self.measured:
      if split in data.pools and not data.pools[split].queries:
        raise InputError(
          f"{data.name}: no question of the split {split} has a right answer (label 1): leave it out of "
          "evaluation.splits, or hold training questions out in its place (data.holdout=0.1)"
        )
    self.rank = retrieve.PoolRanker(config, data, predictor, self.measured)

  def measure(self, variables: Any, split: str) -> list[Evaluation]:
    """Return one evaluation a seed of the variables, by the score that ranks."""
    by_seed = []
    for rankings in self.rank(variables, split, every_score=False):
      by_seed.append(self._evaluation(next(iter(rankings.values())), split))
    return by_seed

  def record(
    self, workdir: epath.PathLike, variables: Any, split: str, outcomes: Sequence[Outcome]
  ) -> None:
    """Measure every score of a split, write its files, add it to the outcome of each seed."""
    by_seed = self.rank(variables, split, every_score=True)
    for outcome, rankings in zip(outcomes, by_seed, strict=True):
      for number, (name, ranking) in enumerate(rankings.items()):
        found = self._evaluation(ranking, split)
        folder = self._recorded(workdir, split, outcome, number, name, found)
        retrieve.write(folder, found, ranking, self.data.pools[split], tag=f"as2jax-{name}")
    self._note(workdir, split, outcomes)

  def _evaluation(self, ranked: retrieve.Ranked, split: str) -> Evaluation:
    often = self.config.evaluation.min_questions_per_answer
    return retrieve.evaluate(ranked, self.data, split, often=often)


def make(config: Any, data: Any, predictor: Any) -> Rerank | Retrieve:
  """Return the task that `evaluation.task` names; `predictor` may be a `predict.FittedRanker`."""
  task = {"rerank": Rerank, "retrieve": Retrieve}[config.evaluation.task]
  return task(config, data, predictor)
