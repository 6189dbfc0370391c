"""Compute MRR and R@k of retrieval from one pool, over all of its entries, exact under ties.

Where the best right entry of a query stands is three numbers (`Standing`), from which every metric
follows in closed form. What is right is set by the question filter: `gold` is the sentence that most
annotators chose (`Query.answers[0]`), `any` one that any of them chose, `often8` is `gold` over the
queries whose gold sentence is that of at least 8. A sentence with the text of a right one is right.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from as2jax.data.record import Pool
from as2jax.evaluation.metrics import reciprocal_of_first

METRICS = ("mrr", "r@1", "r@5")
CUTS = {"r@1": 1, "r@5": 5}
ORDERS = ("pessimistic", "optimistic")
TIES = ("expected", "pessimistic")  # `trec` needs the order of all ids, beyond what is counted
QUESTION_FILTERS = ("gold", "any")
ANY = "any:"  # before a metric's name in a table: that of the question filter `any`


class Standing(NamedTuple):
  """Hold where the best right entries of each query stand, `[q]` each."""

  above: np.ndarray  # entries with a score greater than the best right one's
  wrong: np.ndarray  # wrong entries with that very score
  right: np.ndarray  # right entries with it, 1 or more


def standing(scores: np.ndarray, right: Sequence[int]) -> tuple[int, int, int]:
  """Return (above, wrong, right) of one query from the pool's scores `[n]`, in float32."""
  scores = np.asarray(scores).astype(np.float32)
  chosen = scores[np.asarray(right)]
  best = chosen.max()
  level = int(np.count_nonzero(chosen == best))
  wrong = int(np.count_nonzero(scores == best)) - level
  return int(np.count_nonzero(scores > best)), wrong, level


def per_query(counts: Standing, *, ties: str = "expected") -> dict[str, np.ndarray]:
  """Return {metric: float64 [queries]} for each of `METRICS`.

  `mrr`: 1 / (rank of the first right entry). `r@k`: whether a right entry is among the first k.
  Under `expected` ties both are the exact expectation over uniformly random orders of the entries
  with one score; `pessimistic` puts the wrong ones first, `optimistic` the right ones.
  """
  above, wrong, right = (np.asarray(x, np.int64) for x in counts)
  if ties == "pessimistic":
    above = above + wrong
  if ties != "expected":
    wrong = np.zeros_like(wrong)
  values = {"mrr": reciprocal_of_first(above, wrong, right)}
  for name, cut in CUTS.items():
    values[name] = 1 - _missed(wrong, right, np.maximum(cut - above, 0))
  return values


def right_entries(pool: Pool, question_filter: str) -> list[list[int]]:
  """Return the positions of each query's right passages (`gold` or `any`), also of the same text."""
  place = pool.place()
  same: dict[str, list[int]] = {}
  for i, passage in enumerate(pool.passages):
    same.setdefault(passage.text, []).append(i)
  entries = []
  for query in pool.queries:
    answers = query.answers if question_filter == "any" else query.answers[:1]
    texts = dict.fromkeys(pool.passages[place[answer]].text for answer in answers)
    entries.append([i for text in texts for i in same[text]])
  return entries


def asked(pool: Pool) -> np.ndarray:
  """Count the queries that have each query's gold passage, `[queries]`."""
  count = Counter(query.answers[0] for query in pool.queries)
  return np.asarray([count[query.answers[0]] for query in pool.queries], np.int64)


def spread(vectors: np.ndarray, pool: Pool) -> Mapping[str, float]:
  """Measure how close the queries of one answer lie to one another (Cross-VAE's SSE, table 3).

  Vectors `[queries, d]` are brought to length 1. `sse` is the mean of the squared distance over the
  pairs of different queries with one gold passage, each passage weighing the same; `sse_random` that
  over as many pairs drawn at random; `sse_relative` their quotient, which a model that maps everything
  to one point does not lower; `sse_answers` the passages with two or more queries. {} where none has.
  """
  squared = np.square(vectors, dtype=np.float64).sum(1, keepdims=True)
  unit = vectors / np.sqrt(np.where(squared > 0, squared, 1.0))
  groups: dict[str, list[int]] = {}
  for i, query in enumerate(pool.queries):
    groups.setdefault(query.answers[0], []).append(i)
  means, pairs = [], 0
  for group in groups.values():
    x, n = unit[group], len(group)
    if n > 1:  # Σ_{i<j} ‖x_i − x_j‖² = n Σ ‖x_i‖² − ‖Σ x_i‖²
      means.append((n * np.square(x).sum() - np.square(x.sum(0)).sum()) * 2 / (n * (n - 1)))
      pairs += n * (n - 1) // 2
  if not means:
    return {}
  pairs = max(pairs, 1000)
  random = np.random.default_rng(0)
  first = random.integers(len(unit), size=pairs)
  second = (first + random.integers(1, len(unit), size=pairs)) % len(unit)
  apart = float(np.square(unit[first] - unit[second]).sum(1).mean())
  together = float(np.mean(means))
  relative = together / apart if apart else 1.0
  found = {"sse": together, "sse_random": apart, "sse_relative": relative}
  return {**found, "sse_answers": len(means)}


def _missed(wrong: np.ndarray, right: np.ndarray, places: np.ndarray) -> np.ndarray:
  """Return the probability that none of the first `places` of the tied entries is right."""
  missed = np.ones(len(wrong))
  for place in range(int(places.max(initial=0))):
    left = wrong + right - place
    # No wrong entry is left for this place: a right one stands here or before it.
    factor = np.where(left > right, (left - right) / np.maximum(left, 1), 0.0)
    missed = np.where(place < places, missed * factor, missed)
  return missed
