"""Re-rank what a named run retrieved from a pool (BERT_QA over a large pool)."""

import dataclasses
from typing import Any

import numpy as np
from etils import epath

from as2jax.data.datasets import trec_files
from as2jax.data.datasets.pool import Pool
from as2jax.data.datasets.retrieval import with_candidates
from as2jax.data.record import Question
from as2jax.evaluation import metrics, retrieval_metrics
from as2jax.evaluation.retrieval import ANY, Ranked
from as2jax.evaluation.retrieval_metrics import QUESTION_FILTERS, Standing
from as2jax.runtime import checksums
from as2jax.runtime.errors import InputError


@dataclasses.dataclass(frozen=True)
class Retrieved:
  """The best passages of each query by another run.

  Attributes:
    entries: their positions in the pool, best first.
    questions: the queries with them as candidates.
    reciprocal_ranks: {question_filter: [queries]}, of the first right passage over the whole pool.

  """

  entries: tuple[np.ndarray, ...]
  questions: tuple[Question, ...]
  reciprocal_ranks: dict[str, np.ndarray]


def retrieved(run: epath.PathLike, pool: Pool, split: str, *, depth: int) -> Retrieved:
  """Reads `eval/<split>/run.trec` and `per_question.tsv` of a run of kind `pool`.

  Args:
    depth: how many of the best are taken; score descending, then id descending, as trec_eval does.

  Raises:
    InputError: no such files, another pool's ids, queries that are missing.

  """
  entries, reciprocal_ranks = _read(run, pool, split, depth)
  return Retrieved(tuple(entries), with_candidates(pool, entries), reciprocal_ranks)


def digest(run: epath.PathLike, pool: Pool, split: str) -> str:
  """SHA-256 (hex) of what `retrieved` reads, at any depth; errors as there."""
  entries, reciprocal_ranks = _read(run, pool, split, None)
  arrays = {str(i): order for i, order in enumerate(entries)}
  return checksums.of_arrays(arrays | reciprocal_ranks)


def _read(
  run: epath.PathLike, pool: Pool, split: str, depth: int | None
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
  """The entries and the reciprocal ranks of `Retrieved`; of all depths where `depth` is None."""
  folder = _folder(run, split)
  ranking = trec_files.read_run(folder / "run.trec")
  place = pool.place()
  entries = []
  for query in pool.queries:
    if query.id not in ranking:
      raise InputError(
        f"{folder / 'run.trec'}: query {query.id!r} is missing: the run was made "
        f"for another data set or another split than {split}"
      )
    best = sorted(((score, id) for id, score in ranking[query.id].items()), reverse=True)[:depth]
    unknown = [id for _, id in best if id not in place]
    if unknown:
      raise InputError(
        f"{folder / 'run.trec'}: query {query.id!r}: passage {unknown[0]!r} is not "
        "in the pool: the run was made for another data set"
      )
    entries.append(np.asarray([place[id] for _, id in best], np.int64))
  ids, table = trec_files.read_per_question(folder / "per_question.tsv")
  at = {id: i for i, id in enumerate(ids)}
  missing = [query.id for query in pool.queries if query.id not in at]
  if missing or ANY + "mrr" not in table:
    raise InputError(
      f"{folder / 'per_question.tsv'} lacks "
      + (f"query {missing[0]!r}" if missing else f"the column {ANY}mrr")
      + ": evaluate that run over this pool (evaluation.task=retrieve)"
    )
  rows = [at[query.id] for query in pool.queries]
  return entries, {"gold": table["mrr"][rows], "any": table[ANY + "mrr"][rows]}


def _folder(run: epath.PathLike, split: str) -> epath.Path:
  if not run:
    raise InputError(
      "data.ranking is missing: this model compares each question with each "
      "candidate, so that over a pool it re-ranks the best of another run: "
      "--config.data.ranking=runs/bm25"
    )
  places = [epath.Path(run) / "eval" / split, epath.Path(run) / split]
  for place in places:
    if (place / "run.trec").exists():
      return place
  raise InputError(
    f"data.ranking = {str(run)!r}: there is no {places[0] / 'run.trec'}: name the "
    f"--workdir of a finished run of one seed that was evaluated on {split} "
    "(evaluation.splits)"
  )


def reranked(scores: list[np.ndarray], first_stage: Retrieved, pool: Pool, *, ties: str) -> Ranked:
  """The ranking of the retrieved passages by new scores, one array a query.

  A query whose right passages were all retrieved below the depth keeps its reciprocal rank: what is
  re-ranked stays above them.
  """
  values: dict[str, dict[str, Any]] = {}
  extremes: dict[str, Any] = {}
  notes: list[str] = []
  for query, its_scores in zip(pool.queries, scores, strict=True):
    metrics.require_float32(its_scores, query.id)
  for question_filter in QUESTION_FILTERS:
    right = retrieval_metrics.right_entries(pool, question_filter)
    hits = [
      np.flatnonzero(np.isin(entries, its))
      for entries, its in zip(first_stage.entries, right, strict=True)
    ]
    inside = np.flatnonzero([len(x) > 0 for x in hits])
    places = np.asarray([retrieval_metrics.standing(scores[q], hits[q]) for q in inside], np.int64)
    standing = Standing(*places.reshape(-1, 3).T)
    by_order = []
    for order in (ties, *retrieval_metrics.ORDERS):
      measured = retrieval_metrics.per_query(standing, ties=order)
      whole = {name: np.zeros(len(scores)) for name in measured}
      whole["mrr"] = first_stage.reciprocal_ranks[question_filter].copy()
      for name, its in measured.items():
        whole[name][inside] = its
      by_order.append(whole)
    values[question_filter], *extremes[question_filter] = by_order
    notes.append(
      f"{question_filter}: {len(inside)} of {len(scores)} queries have a right passage among "
      "what is re-ranked"
    )
  order = [np.argsort(-x, kind="stable") for x in scores]
  return Ranked(
    values,
    extremes,
    [entries[o] for entries, o in zip(first_stage.entries, order, strict=True)],
    [x[o] for x, o in zip(scores, order, strict=True)],
    notes,
    {},
  )
