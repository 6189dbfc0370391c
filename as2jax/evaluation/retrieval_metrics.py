"""Compute MRR and R@k of retrieval from one pool, over all of its entries, exact under ties.

Where the best right entry of a query stands is three numbers (`Standing`); every metric follows
from them in closed form, so that the ranking itself is never needed. What is right is set by the
question_filter, which is part of a metric's name:
  `gold`: the sentence that most annotators chose (`Query.answers[0]`);
  `any`: a sentence that any annotator chose;
  `often8`: `gold` over the queries whose gold sentence is that of at least 8 of them.
A sentence with the same text as a right one counts as right.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from as2jax.data.record import Pool
from as2jax.runtime.errors import InputError

METRICS = ("mrr", "r@1", "r@5")
CUTS = {"r@1": 1, "r@5": 5}
ORDERS = ("pessimistic", "optimistic")
TIES = ("expected", "pessimistic")  # `trec` needs the order of all ids, beyond what is counted
QUESTION_FILTERS = ("gold", "any")
ANY = "any:"  # before a metric's name in a table: that of the question filter `any`


@dataclasses.dataclass(frozen=True)
class Standing:
  """Hold where the best right entries of each query stand, `[q]` each.

  Attributes:
    above: entries with a score greater than the best right one's.
    wrong: wrong entries with that very score; right: right entries with it, 1 or more.

  """

  above: np.ndarray
  wrong: np.ndarray
  right: np.ndarray


def standing(scores: np.ndarray, right: Sequence[int]) -> tuple[int, int, int]:
  """Return (above, wrong, right) of one query from the pool's scores `[n]`, in float32."""
  scores = np.asarray(scores).astype(np.float32)
  chosen = scores[np.asarray(right)]
  best = chosen.max()
  level = int(np.count_nonzero(chosen == best))
  return (
    int(np.count_nonzero(scores > best)),
    int(np.count_nonzero(scores == best)) - level,
    level,
  )


def per_query(counts: Standing, *, ties: str = "expected") -> dict[str, np.ndarray]:
  """Return {metric: float64 [queries]} for each of `METRICS`.

  `mrr`: 1 / (rank of the first right entry). `r@k`: whether a right entry is among the first k.
  Under `expected` ties both are the exact expectation over uniformly random orders of the entries
  with one score; `pessimistic` puts the wrong ones first, `optimistic` the right ones.

  Raises:
    InputError: another policy.

  """
  if ties not in (*TIES, *ORDERS):
    raise InputError(f"evaluation.ties = {ties!r}: over a pool use one of {', '.join(TIES)}")
  above, wrong, right = (np.asarray(x, np.int64) for x in dataclasses.astuple(counts))
  if ties == "pessimistic":
    above, wrong = above + wrong, np.zeros_like(wrong)
  elif ties == "optimistic":
    wrong = np.zeros_like(wrong)
  values = {"mrr": _reciprocal_rank(above, wrong, right)}
  for name, cut in CUTS.items():
    values[name] = 1 - _missed(wrong, right, np.maximum(cut - above, 0))
  return values


def right_entries(pool: Pool, question_filter: str) -> list[list[int]]:
  """Return the positions of each query's right passages, those of the same text with them."""
  if question_filter not in QUESTION_FILTERS:
    raise InputError(
      f"{question_filter!r} is no question filter of a pool: use one of {', '.join(QUESTION_FILTERS)}"
    )
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


def spread(vectors: np.ndarray, pool: Pool, *, seed: int = 0) -> Mapping[str, float]:
  """Measure how close the queries of one answer lie to one another (Cross-VAE's SSE, table 3).

  Vectors are brought to length 1. `sse` is the mean of the squared distance over the pairs of
  different queries with one gold passage, each passage weighing the same; `sse_random` that over
  as many pairs drawn at random; `sse_relative` their quotient, which a model that maps everything
  to one point does not lower.

  Args:
    vectors: `[queries, d]`.

  Returns:
    The three, and `sse_answers`, the number of passages with two or more queries; {} where none has.

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
  random = np.random.default_rng(seed)
  first = random.integers(len(unit), size=pairs)
  second = (first + random.integers(1, len(unit), size=pairs)) % len(unit)
  apart = float(np.square(unit[first] - unit[second]).sum(1).mean())
  together = float(np.mean(means))
  return {
    "sse": together,
    "sse_random": apart,
    "sse_relative": together / apart if apart else 1.0,
    "sse_answers": len(means),
  }


def _reciprocal_rank(above: np.ndarray, wrong: np.ndarray, right: np.ndarray) -> np.ndarray:
  """Return E[1 / rank of the first right entry] where `wrong` + `right` entries are in random order."""
  expected = np.zeros(len(above))
  live, missed, place = np.arange(len(above)), np.ones(len(above)), 0
  while len(live):  # one place of the tied entries a turn
    left = wrong[live] + right[live] - place
    expected[live] += missed * right[live] / left / (above[live] + place + 1)
    missed = missed * (left - right[live]) / left
    place += 1
    more = wrong[live] >= place
    live, missed = live[more], missed[more]
  return expected


def _missed(wrong: np.ndarray, right: np.ndarray, places: np.ndarray) -> np.ndarray:
  """Return the probability that none of the first `places` of the tied entries is right."""
  missed = np.ones(len(wrong))
  for place in range(int(places.max(initial=0))):
    left = wrong + right - place
    # No wrong entry is left for this place: a right one stands here or before it.
    factor = np.where(left > right, (left - right) / np.maximum(left, 1), 0.0)
    missed = np.where(place < places, missed * factor, missed)
  return missed
