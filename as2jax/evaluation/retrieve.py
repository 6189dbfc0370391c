"""Rank a pool for each of its queries, measure every question filter, write run files.

A system that encodes is searched by its vectors, a cross-encoder ranks again what a named run
retrieved, and rankers without parameters score the whole pool.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath

from as2jax.data import trec_files
from as2jax.data.record import Pool, Question
from as2jax.data.retrieval import Retrieval, with_candidates
from as2jax.evaluation import exact_search, metrics, retrieval_metrics
from as2jax.evaluation.results import Evaluation
from as2jax.evaluation.retrieval_metrics import (
  ANY,
  ORDERS,
  QUESTION_FILTERS,
  Standing,
  right_entries,
)
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import digest_of_arrays


@dataclasses.dataclass(frozen=True)
class Ranked:
  """Hold the ranking of a pool by one score.

  Attributes:
    values: {question_filter: {metric: [queries]}} for `QUESTION_FILTERS`.
    extremes: likewise (worst, best), by the order of tied passages.
    entries, scores: positions in the pool of each query's best passages, best first; float32.

  """

  values: Mapping[str, Mapping[str, np.ndarray]]
  extremes: Mapping[str, Sequence[Mapping[str, np.ndarray]]]
  entries: Sequence[np.ndarray]
  scores: Sequence[np.ndarray]
  notes: Sequence[str] = ()
  spread: Mapping[str, float] = dataclasses.field(default_factory=dict)


def numbers(values: Iterable[str | bytes]) -> np.ndarray:
  """Return the number of each value in the order of first sight, as `examples.sentences` has it."""
  number: dict[str | bytes, int] = {}
  return np.asarray([number.setdefault(value, len(number)) for value in values], np.int64)


def by_vectors(
  searcher: exact_search.Searcher,
  queries: np.ndarray,
  passages: np.ndarray,
  pool: Pool,
  similarity: str,
  *,
  ties: str,
) -> Ranked:
  """Rank a pool by a similarity of vectors `[q, d]` and `[n, d]`.

  Passages that are equal bit by bit are searched once, so that their scores are equal on any device.
  """
  of = numbers(row.tobytes() for row in np.asarray(passages) + np.float32(0))  # −0 becomes 0
  first = np.unique(of, return_index=True)[1]
  weights = np.bincount(of, minlength=len(first))
  right_passages = [right_entries(pool, name) for name in QUESTION_FILTERS]
  right_rows = []
  for of_queries in right_passages:
    right_rows.append([list(dict.fromkeys(of[entries].tolist())) for entries in of_queries])
  result = searcher(
    exact_search.prepared(queries, similarity, side="query"),
    exact_search.prepared(passages[first], similarity, side="pool"),
    weights=weights,
    right=right_rows,
  )
  counts = np.stack([result.above, result.level, np.zeros_like(result.level)], axis=2)
  for t, of_queries in enumerate(right_rows):
    for q, rows in enumerate(of_queries):
      scores, passages_of_row = result.right[q, t], np.bincount(of[right_passages[t][q]])
      level = sum(passages_of_row[row] for row, score in zip(rows, scores) if score == scores.max())
      counts[q, t, 1:] += -level, level
  members = np.split(np.argsort(of, kind="stable"), np.cumsum(weights)[:-1])
  reported = exact_search.reported(result, queries, passages[first], similarity)
  entries, scores = [], []
  for chosen, values in zip(result.entries, reported, strict=True):
    chosen = chosen[chosen != exact_search.NONE]
    entries.append(np.concatenate([members[i] for i in chosen])[: searcher.k])
    scores.append(np.repeat(values[: len(chosen)], weights[chosen])[: searcher.k])
  spread = retrieval_metrics.spread(queries, pool)
  return Ranked(*_measured(counts.swapaxes(0, 1), ties), entries, scores, spread=spread)


def by_scores(score: Callable[[str], np.ndarray], pool: Pool, *, depth: int, ties: str) -> Ranked:
  """Rank by a function from a question to the float32 scores `[n]` of all passages."""
  right = [right_entries(pool, name) for name in QUESTION_FILTERS]
  counts = np.zeros((len(QUESTION_FILTERS), len(pool.queries), 3), np.int64)
  entries, kept = [], []
  for q, query in enumerate(pool.queries):
    scores = score(query.text)
    for t, of_queries in enumerate(right):
      counts[t, q] = retrieval_metrics.standing(scores, of_queries[q])
    entries.append(best(scores, depth))
    kept.append(scores[entries[-1]])
  return Ranked(*_measured(counts, ties), entries, kept)


def _measured(
  counts: np.ndarray, ties: str, first_stage: Mapping[str, np.ndarray] | None = None
) -> tuple[dict, dict]:
  """Return the metrics by question filter under `ties`, and those of the worst and best order.

  Args:
    counts: of `Standing`, `[filter, query, 3]`; of a query without a right passage 0.
    first_stage: {question_filter: reciprocal ranks} that such queries keep.

  """
  values, extremes = {}, {}
  for name, of_queries in zip(QUESTION_FILTERS, counts, strict=True):
    above, wrong, right = of_queries.T
    by_order = []
    for order in (ties, *ORDERS):
      found = retrieval_metrics.per_query(Standing(above, wrong, np.maximum(right, 1)), ties=order)
      if first_stage is not None:
        for metric, measured in found.items():
          otherwise = first_stage[name] if metric == "mrr" else 0.0
          found[metric] = np.where(right > 0, measured, otherwise)
      by_order.append(found)
    values[name], *extremes[name] = by_order
  return values, extremes


def best(scores: np.ndarray, k: int) -> np.ndarray:
  """Return the positions of the k greatest scores, best first, equal ones in ascending order."""
  for at in np.flatnonzero(~np.isfinite(scores))[:1]:
    raise InputError(
      f"the score of passage {at + 1} of the pool is {scores[at]}: correct the ranker"
    )
  chosen = np.arange(len(scores))
  if k < len(scores):
    limit = np.partition(scores, len(scores) - k)[len(scores) - k]
    chosen = np.flatnonzero(scores >= limit)
  return chosen[np.argsort(-scores[chosen], kind="stable")][:k]


def evaluate(ranked: Ranked, data: Retrieval, split: str, *, often: int) -> Evaluation:
  """Measure one ranking under `gold`, `any` and `often<n>` (where an answer is asked for so often)."""
  pool = data.pools[split]
  every, asked = np.ones(len(pool.queries), bool), retrieval_metrics.asked(pool)
  table = dict(ranked.values["gold"])
  for metric, values in ranked.values["any"].items():
    table[ANY + metric] = values
  table["asked"] = asked.astype(np.float64)
  table = metrics.with_groups(table, pool.queries)
  found = Evaluation({}, {}, table, [f"{data.name}-{split}, {note}" for note in ranked.notes])
  often_asked = (f"often{often}", "gold", asked >= often)
  for name, rule, mask in (("gold", "gold", every), ("any", "any", every), often_asked):
    if mask.any():
      where = f"{data.name}-{name}/{split}"
      found.add(where, mask, ranked.values[rule], ranked.extremes[rule], noted=name == rule)
  for name in ("sse", "sse_random", "sse_relative") if ranked.spread else ():
    count = ranked.spread["sse_answers"]
    entry = {"value": ranked.spread[name], "half_width": None, "questions": count}
    found.metrics[f"{name}[{data.name}-gold/{split}]"] = entry
  return found


def write(
  folder: epath.PathLike, evaluation: Evaluation, ranked: Ranked, pool: Pool, *, tag: str
) -> None:
  """Write `run.trec` (the best of each query), `qrels.trec`, `qrels-any.trec`, `per_question.tsv`."""
  folder = epath.Path(folder)
  ids = [query.id for query in pool.queries]
  named = lambda every: [[pool.passages[i].id for i in entries] for entries in every]
  trec_files.write_run(folder / "run.trec", ids, named(ranked.entries), ranked.scores, tag)
  gold = right_entries(pool, "gold")
  for file, right in (("qrels.trec", gold), ("qrels-any.trec", right_entries(pool, "any"))):
    ones = [np.ones(len(entries)) for entries in right]
    trec_files.write_qrels(folder / file, ids, named(right), ones)
  sizes = [len(pool.passages)] * len(ids)
  table = folder / "per_question.tsv"
  trec_files.write_table(table, ids, sizes, list(map(len, gold)), evaluation.per_question)


class Retrieved(NamedTuple):
  """Hold the best passages of each query by another run."""

  entries: Sequence[np.ndarray]  # their positions in the pool, best first
  questions: tuple[Question, ...]  # the queries with them as candidates
  # {question_filter: [queries]}, of the first right passage over the whole pool
  reciprocal_ranks: dict[str, np.ndarray]


def retrieved(run: epath.PathLike, pool: Pool, split: str, depth: int | None = None) -> Retrieved:
  """Read `eval/<split>/run.trec` and `per_question.tsv` of a run over the same pool.

  Args:
    depth: how many of the best are taken, None for all; ties by id descending, as trec_eval does.

  """
  if not run:
    raise InputError(
      "data.ranking is missing: this model compares each question with each candidate, so that over a "
      "pool it re-ranks the best of another run: --config.data.ranking=runs/bm25"
    )
  inside = f"eval/{split}" if (epath.Path(run) / "eval" / split / "run.trec").exists() else split
  folder = epath.Path(run) / inside
  if not (folder / "run.trec").exists():
    raise InputError(
      f"data.ranking = {str(run)!r}: there is no eval/{split}/run.trec: name the folder of a finished "
      f"run of one seed that was evaluated on {split} (evaluation.splits)"
    )
  ranking = trec_files.read_run(bound.file(run, f"{inside}/run.trec"))
  ids, table = trec_files.read_per_question(bound.file(run, f"{inside}/per_question.tsv"))
  place = pool.place()
  at = {id: i for i, id in enumerate(ids)}
  entries, rows = [], []
  for query in pool.queries:
    scores = ranking.get(query.id, {})
    known = query.id in ranking and query.id in at and ANY + "mrr" in table
    if not known or scores.keys() - place.keys():
      raise InputError(
        f"{folder}: query {query.id!r} is missing in run.trec or per_question.tsv, has passages that are "
        f"not in the pool, or no {ANY}mrr: the run was made for another data set, split or task than "
        f"{split} of this pool"
      )
    listed = sorted(((score, id) for id, score in scores.items()), reverse=True)[:depth]
    entries.append(np.asarray([place[id] for _, id in listed], np.int64))
    rows.append(at[query.id])
  ranks = {"gold": table["mrr"][rows], "any": table[ANY + "mrr"][rows]}
  return Retrieved(tuple(entries), with_candidates(pool, entries), ranks)


def digest(run: epath.PathLike, pool: Pool, split: str) -> str:
  """Return the SHA-256 (hex) of what `retrieved` reads, at any depth; errors as there."""
  found = retrieved(run, pool, split)
  arrays = {str(i): order for i, order in enumerate(found.entries)}
  return digest_of_arrays(arrays | found.reciprocal_ranks)


def reranked(scores: list[np.ndarray], first_stage: Retrieved, pool: Pool, *, ties: str) -> Ranked:
  """Rank the retrieved passages by new scores, one array a query.

  A query whose right passages were all retrieved below the depth keeps its reciprocal rank: what is
  re-ranked stays above them.
  """
  counts, notes = np.zeros((len(QUESTION_FILTERS), len(scores), 3), np.int64), []
  for t, name in enumerate(QUESTION_FILTERS):
    for q, right in enumerate(right_entries(pool, name)):
      hits = np.flatnonzero(np.isin(first_stage.entries[q], right))
      if len(hits):
        counts[t, q] = retrieval_metrics.standing(scores[q], hits.tolist())
    inside = np.count_nonzero(counts[t, :, 2])
    notes.append(
      f"{name}: {inside} of {len(scores)} queries have a right passage among what is re-ranked"
    )
  entries, ordered = [], []
  for places, values in zip(first_stage.entries, scores, strict=True):
    order = np.argsort(-values, kind="stable")
    entries.append(places[order])
    ordered.append(values[order])
  return Ranked(*_measured(counts, ties, first_stage.reciprocal_ranks), entries, ordered, notes)
