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
from as2jax.data.record import Pool, Question
from as2jax.data.retrieval import Retrieval, with_candidates
from as2jax.evaluation import exact_search, metrics, results, retrieval_metrics, retrieve
from as2jax.evaluation.results import Evaluation, Outcome
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)
NO_CHOICE = (
  "no question has both a right and a wrong candidate, so that every ranking has the same metrics: add "
  "candidates with label 0, or rank one pool of all candidates (evaluation.task=retrieve)"
)


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
  names, ids, labels = metrics.columns_of(questions)
  per_question = metrics.per_question(scores, labels, ids, ties=ties, names=names)
  extremes = metrics.tie_extremes(scores, labels, names=names)
  table = {**metrics.of_first(scores, questions), **per_question}
  found = Evaluation({}, {}, metrics.with_groups(table, questions), [])
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
  names, ids, labels = metrics.columns_of(questions)
  trec_files.write_per_question(folder / "per_question.tsv", names, labels, evaluation.per_question)
  ranked, their_scores = [], []
  for question, values in zip(questions, scores, strict=True):
    if question.candidates:
      ranked.append(question)
      their_scores.append(values)
  names, ids, labels = metrics.columns_of(ranked)
  trec_files.write_run(folder / "run.trec", names, ids, their_scores, tag)
  trec_files.write_qrels(folder / "qrels.trec", names, ids, labels)


class _Task:
  """Share what both tasks have: how a split is ranked, measured and written is each one's own."""

  selector: str  # the metric that selects
  _ranked: Any  # (variables, split) -> of each seed {score: ranking}
  _evaluate: Any  # (ranking, split) -> Evaluation
  _write: Any  # (folder, evaluation, ranking, split, tag): writes its files

  def __init__(self, config: Any, data: Any):
    self.config, self.data = config, data
    self.selection = holdout.selection_split(config.data)
    self.measured = list(config.evaluation.splits)
    if config.mode == "train":
      self.measured = list(dict.fromkeys((self.selection, *self.measured)))

  def record(
    self, workdir: epath.PathLike, variables: Any, split: str, outcomes: Sequence[Outcome]
  ) -> None:
    """Measure every score of a split, write its files, add it to the outcome of each seed."""
    for outcome, rankings in zip(outcomes, self._ranked(variables, split), strict=True):
      for number, (name, ranking) in enumerate(rankings.items()):  # the first score ranks
        found = self._evaluate(ranking, split)
        outcome.add(name, found, primary=number == 0)
        score = name if number else ""
        folder = results.folder(workdir, split, outcome.seed, self.config.seeds, score)
        self._write(folder, found, ranking, split, f"as2jax-{name}")
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
        one = self._evaluate(filled, split)
        if measured and self.selector in one.metrics:
          value = one.metrics[self.selector]["value"]
          measured[0].scalars[f"{self.selector} by {name}"] = value
        measured.append(one)
      by_seed.append(measured[0])
    return by_seed

  def _ranked(self, variables: Any, split: str) -> Sequence[dict[str, Any]]:
    return self.predictor(variables, self.data.splits[split])

  def _evaluate(self, ranking: Any, split: str) -> Evaluation:
    return evaluate(ranking, self.data, split, ties=self.config.evaluation.ties)

  def _write(self, folder, evaluation, ranking, split, tag) -> None:
    write(folder, evaluation, ranking, self.data.splits[split], tag=tag)


class Retrieve(_Task):
  """Rank one pool for all queries: by vectors, by words, or again what another run retrieved."""

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
    self.ties, self.depth = config.evaluation.ties, config.evaluation.depth
    self.predictor, self.model, self._kept = predictor, predictor.model, {}
    self.scores = [self.model.ranking_score]
    if not self.model.encodes and self.model.has_parameters:
      for split in self.measured:  # what is wrong with the files is found before a training
        pool = data.pools[split]
        self._kept[split] = retrieve.retrieved(config.data.ranking, pool, split, self.depth)
    elif self.model.has_parameters:
      self.searcher = exact_search.Searcher(predictor.mesh, k=self.depth)
      known = exact_search.SIMILARITIES
      if self.scores[0] not in known:
        raise InputError(
          f"model.score = {self.scores[0]!r}: a pool can be searched by {', '.join(known)}; set "
          "--config.model.score"
        )
      self.scores += [n for n in self.model.score_names if n in known and n not in self.scores]

  def measure(self, variables: Any, split: str) -> list[Evaluation]:
    """Return one evaluation a seed of the variables, by the score that ranks."""
    by_seed = self._ranked(variables, split, scores=self.scores[:1])
    return [self._evaluate(next(iter(rankings.values())), split) for rankings in by_seed]

  def _ranked(self, variables: Any, split: str, scores: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return {score: the ranking of the pool} of each seed, of all scores unless some are given."""
    pool, score = self.data.pools[split], self.scores[0]
    if not self.model.has_parameters:
      of_pool = self.predictor.scorer.over_pool([passage.text for passage in pool.passages])
      return [{score: retrieve.by_scores(of_pool, pool, depth=self.depth, ties=self.ties)}]
    if self.model.encodes:
      return self._by_vectors(variables, split, pool, scores or self.scores)
    first_stage, by_seed = self._kept[split], []
    for found in self.predictor(variables, first_stage.questions):
      values = next(iter(found.values()))
      by_seed.append({score: retrieve.reranked(values, first_stage, pool, ties=self.ties)})
    return by_seed

  def _by_vectors(self, variables, split, pool, scores) -> list[dict[str, Any]]:
    if split not in self._kept:  # the queries alone, and one query with all passages
      texts = tuple(Question(query.id, query.text, ()) for query in pool.queries)
      every = [np.arange(len(pool.passages))]
      self._kept[split] = texts, with_candidates(Pool(pool.passages, pool.queries[:1]), every)
    texts, anchor = self._kept[split]
    of_queries = self.predictor.embed(variables, texts)
    of_passages = self.predictor.embed(variables, anchor)
    asked = retrieve.numbers(query.text for query in pool.queries)
    held = 1 + retrieve.numbers(passage.text for passage in pool.passages)  # behind the query
    by_seed = []
    for vectors in zip(of_queries[:, asked], of_passages[:, held], strict=True):
      rankings = {}
      for name in scores:
        rankings[name] = retrieve.by_vectors(self.searcher, *vectors, pool, name, ties=self.ties)
      by_seed.append(rankings)
    return by_seed

  def _evaluate(self, ranking: retrieve.Ranked, split: str) -> Evaluation:
    often = self.config.evaluation.min_questions_per_answer
    return retrieve.evaluate(ranking, self.data, split, often=often)

  def _write(self, folder, evaluation, ranking, split, tag) -> None:
    retrieve.write(folder, evaluation, ranking, self.data.pools[split], tag=tag)


def make(config: Any, data: Any, predictor: Any) -> Rerank | Retrieve:
  """Return the task that `evaluation.task` names; `predictor` may be a `predict.FittedRanker`."""
  task = {"rerank": Rerank, "retrieve": Retrieve}[config.evaluation.task]
  return task(config, data, predictor)
