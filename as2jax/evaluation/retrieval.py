"""Rank a pool for each of its queries, measure every question filter, write run files.

A model that encodes sentences is ranked by `search`, a cross-encoder re-ranks what a named run
retrieved, and rankers without parameters give the scores of the whole pool.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data.datasets import trec_files
from as2jax.data.datasets.pool import Pool
from as2jax.data.datasets.retrieval import Retrieval, with_candidates
from as2jax.data.record import Question
from as2jax.evaluation import exact_search, metrics, retrieval_metrics
from as2jax.evaluation.predict import Evaluation, Predictor
from as2jax.evaluation.retrieval_metrics import QUESTION_FILTERS, Standing
from as2jax.evaluation.run_files import ANY as ANY
from as2jax.runtime import processes
from as2jax.runtime.errors import InputError


@dataclasses.dataclass(frozen=True)
class Ranked:
  """What one ranker made of a pool.

  Attributes:
    values: {question_filter: {metric: [queries]}} for `QUESTION_FILTERS`.
    extremes: likewise, under the worst and under the best order of tied passages.
    entries: positions in the pool of each query's best passages, best first.
    scores: their float32 scores.
    notes: what a reader must know.
    spread: `pool_metrics.spread`, {} where there are no vectors.

  """

  values: Mapping[str, Mapping[str, np.ndarray]]
  extremes: Mapping[str, tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]
  entries: Sequence[np.ndarray]
  scores: Sequence[np.ndarray]
  notes: Sequence[str]
  spread: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Texts:
  """The texts of a pool as questions, for `Predictor.embed`: two calls, one a role."""

  queries: tuple[Question, ...]
  passages: tuple[Question, ...]

  @classmethod
  def of(cls, pool: Pool) -> "Texts":
    """Queries without candidates, and one query with all passages as its candidates."""
    places = np.arange(len(pool.passages))
    asked = tuple(Question(query.id, query.text, ()) for query in pool.queries)
    alone = Pool(pool.passages, pool.queries[:1])
    return cls(asked, with_candidates(alone, [places]))


class Vectors:
  """The vectors of a pool's queries and passages by a model, split by split; batches are kept."""

  def __init__(self, predictor: Predictor, data: Retrieval):
    self.predictor, self.data = predictor, data
    self._texts: dict[str, Texts] = {}

  def texts(self, split: str) -> Texts:
    """The texts of the pool of a split."""
    if split not in self._texts:
      self._texts[split] = Texts.of(self.data.pools[split])
    return self._texts[split]

  def __call__(self, variables: Any, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Queries `[seed, q, d]` and passages `[seed, n, d]`, float32."""
    texts = self.texts(split)
    queries, _ = self.predictor.embed(variables, texts.queries)
    passages, _ = self.predictor.embed(variables, texts.passages)
    asked = numbers(q.text for q in texts.queries)
    (anchor,) = texts.passages
    held = 1 + numbers(c.text for c in anchor.candidates)  # behind the query
    return queries[:, asked], passages[:, held]


def numbers(texts: Any) -> np.ndarray:
  """The number of each text of one side in the order of first sight, see `examples.Sentences`."""
  number: dict[str, int] = {}
  return np.asarray([number.setdefault(text, len(number)) for text in texts], np.int64)


def distinct(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """The position of the first of each distinct row, and the number of each row's: [m], [n].

  Rows that are equal bit by bit are searched once, so that their scores are equal, too, whatever a
  device makes of a row's place in a block.
  """
  number: dict[bytes, int] = {}
  rows = np.ascontiguousarray(vectors + np.float32(0))  # −0 becomes 0
  of = np.asarray([number.setdefault(row.tobytes(), len(number)) for row in rows], np.int64)
  _, first = np.unique(of, return_index=True)
  return first, of


def by_vectors(
  searcher: exact_search.Searcher,
  queries: np.ndarray,
  passages: np.ndarray,
  pool: Pool,
  similarity: str,
  *,
  ties: str,
) -> Ranked:
  """Ranks by a similarity of vectors `[q, d]` and `[n, d]`."""
  first, of = distinct(passages)
  weights = np.bincount(of, minlength=len(first))
  right_passages = [
    retrieval_metrics.right_entries(pool, question_filter) for question_filter in QUESTION_FILTERS
  ]
  right = [[list(dict.fromkeys(of[entries].tolist())) for entries in one] for one in right_passages]
  prepared = [
    exact_search.prepared(x, similarity, side=side)
    for x, side in ((queries, "query"), (passages[first], "pool"))
  ]
  result = searcher(*prepared, weights=weights, right=right)
  standings = {}
  for t, question_filter in enumerate(QUESTION_FILTERS):
    level = np.asarray(
      [
        _level(of[entries], rows, result.right[q, t])
        for q, (entries, rows) in enumerate(zip(right_passages[t], right[t], strict=True))
      ]
    )
    standings[question_filter] = Standing(result.above[:, t], result.level[:, t] - level, level)
  members = np.split(np.argsort(of, kind="stable"), np.cumsum(weights)[:-1])
  scores = exact_search.reported(result, queries, passages[first], similarity)
  entries, kept = [], []
  for query, chosen, its in zip(pool.queries, result.entries, scores, strict=True):
    metrics.require_float32(its, query.id)
    chosen = chosen[chosen != exact_search.NONE]
    entries.append(np.concatenate([members[i] for i in chosen])[: searcher.k])
    kept.append(np.repeat(its[: len(chosen)], weights[chosen])[: searcher.k])
  values = retrieval_metrics.with_extremes(standings, ties)
  return Ranked(*values, entries, kept, [], retrieval_metrics.spread(queries, pool))


def _level(vectors: np.ndarray, rows: Sequence[int], scores: np.ndarray) -> int:
  """How many right passages have the best score; `scores` are those of their distinct `rows`."""
  of = dict(zip(rows, scores))
  return sum(of[v] == scores.max() for v in vectors.tolist())


def by_scores(score: Callable[[str], np.ndarray], pool: Pool, *, depth: int, ties: str) -> Ranked:
  """Ranks by a function from a question to the float32 scores `[n]` of all passages."""
  right_passages = [
    retrieval_metrics.right_entries(pool, question_filter) for question_filter in QUESTION_FILTERS
  ]
  standings = np.zeros((len(QUESTION_FILTERS), len(pool.queries), 3), np.int64)
  entries, kept = [], []
  for q, query in enumerate(pool.queries):
    scores = score(query.text)
    metrics.require_float32(scores, query.id)
    for t, one in enumerate(right_passages):
      standings[t, q] = retrieval_metrics.standing(scores, one[q])
    entries.append(best(scores, depth))
    kept.append(scores[entries[-1]])
  by_filter = {f: Standing(*s.T) for f, s in zip(QUESTION_FILTERS, standings, strict=True)}
  return Ranked(*retrieval_metrics.with_extremes(by_filter, ties), entries, kept, [], {})


def best(scores: np.ndarray, k: int) -> np.ndarray:
  """Positions of the k greatest scores, best first, equal ones in ascending order.

  Raises:
    InputError: a score is not finite.

  """
  if not np.isfinite(scores).all():
    at = int(np.argmin(np.isfinite(scores)))
    raise InputError(
      f"the score of passage {at + 1} of the pool is {scores[at]}, which cannot be "
      "ranked; correct the ranker"
    )
  if k < len(scores):
    limit = np.partition(scores, len(scores) - k)[len(scores) - k]
    chosen = np.flatnonzero(scores >= limit)
  else:
    chosen = np.arange(len(scores))
  return chosen[np.argsort(-scores[chosen], kind="stable")][:k]


def evaluation(ranked: Ranked, data: Retrieval, split: str, *, often: int) -> Evaluation:
  """Measures one ranking under `gold`, `any` and `often<n>` (where a query is asked so often)."""
  pool = data.pools[split]
  every = np.ones(len(pool.queries), bool)
  asked = retrieval_metrics.asked(pool)
  summary: dict[str, dict] = {}
  counted: dict[str, np.ndarray] = {}
  notes = [f"{data.name}-{split}, {note}" for note in ranked.notes]
  for name, question_filter, mask in (
    ("gold", "gold", every),
    ("any", "any", every),
    (f"often{often}", "gold", asked >= often),
  ):
    if mask.any():
      values, where = ranked.values[question_filter], f"{data.name}-{name}/{split}"
      ranges = metrics.ranges_of(*ranked.extremes[question_filter], mask)
      summary |= metrics.summarize(
        values, mask, dataset=data.name, question_filter=name, split=split, ranges=ranges
      )
      counted |= {f"{metric}[{where}]": its[mask] for metric, its in values.items()}
      notes += metrics.tie_note(ranges, where) if name == question_filter else []
  if ranked.spread:
    count = ranked.spread["sse_answers"]
    summary |= {
      f"{name}[{data.name}-gold/{split}]": {
        "value": ranked.spread[name],
        "half_width": None,
        "questions": count,
      }
      for name in ("sse", "sse_random", "sse_relative")
    }
  table = {
    **ranked.values["gold"],
    **{ANY + name: values for name, values in ranked.values["any"].items()},
    "asked": asked.astype(np.float64),
  }
  return Evaluation(summary, counted, table, notes)


def write(
  folder: epath.PathLike, evaluated: Evaluation, ranked: Ranked, pool: Pool, *, tag: str
) -> None:
  """Writes `run.trec` (the best of each query), `qrels.trec` (gold), `qrels-any.trec` and
  `per_question.tsv`, where `asked` is the number of queries with the same gold passage.
  """
  folder = epath.Path(folder)
  if processes.first():
    folder.mkdir(parents=True, exist_ok=True)
  ids = [query.id for query in pool.queries]
  name = lambda places: [pool.passages[i].id for i in places]
  trec_files.write_run(
    folder / "run.trec", ids, [name(x) for x in ranked.entries], ranked.scores, tag
  )
  for file, question_filter in (("qrels.trec", "gold"), ("qrels-any.trec", "any")):
    right = retrieval_metrics.right_entries(pool, question_filter)
    trec_files.write_qrels(
      folder / file, ids, [name(x) for x in right], [np.ones(len(x)) for x in right]
    )
    if question_filter == "gold":
      trec_files.write_table(
        folder / "per_question.tsv",
        ids,
        [len(pool.passages)] * len(ids),
        list(map(len, right)),
        evaluated.per_question,
      )
