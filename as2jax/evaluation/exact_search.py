"""Search a pool exactly: the entries of greatest inner product, and the ranks of the right ones.

Every similarity is an inner product of prepared vectors (`prepared`). The pool passes through the
devices block by block; the full matrix of scores never exists. One compiled program reads the scores
of the right entries in a first sweep and counts what lies above them in a second: the same program
on the same blocks gives the same float32 scores, so that ties are exact.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from as2jax.runtime.errors import InputError
from as2jax.runtime.sharding import AXES, put

SIMILARITIES = ("dot", "cosine", "euclidean")
ROWS = 4096  # of the pool in a block, a device
QUERIES = 512  # in a block
NONE = -1  # the number of an entry that is not there
Rows = Any  # a pool `[n, d]` of float32: an array, or anything with a `shape` that can be sliced
LONGEST = float(np.finfo(np.float32).max) / 4  # ‖q‖², ‖p‖²: so that ‖q − p‖² is finite in float32


class SearchResult(NamedTuple):
  """Hold what a search found for each query."""

  scores: np.ndarray  # `[q, k]` float32, best first; −inf where the pool has fewer entries
  entries: np.ndarray  # `[q, k]` int32, their numbers, equal scores in ascending order; or `NONE`
  # `[q, t, r]` float32, scores of the right entries of each of t judgements, −inf where there are fewer
  right: np.ndarray
  # `[q, t]` int64, the weight of the entries with a score greater than, and equal to, that of the best
  # right entry, which is itself among the level ones
  above: np.ndarray
  level: np.ndarray


def prepared(vectors: np.ndarray, similarity: str, *, side: str) -> np.ndarray:
  """Return vectors `[n, d]` of a `query` or `pool` whose inner products rank as the similarity does.

  `cosine`: of length 1 (a zero vector stays zero). `euclidean`: `[n, d + 1]`, 2q with 1 and p with
  −‖p‖²; the product is −‖q − p‖² + ‖q‖², of which `reported` makes −‖q − p‖.
  """
  vectors = np.asarray(vectors, np.float32)
  squared = np.square(vectors, dtype=np.float64).sum(1, keepdims=True)
  if not (squared <= LONGEST).all():  # nor is it for NaN
    bad = int(np.flatnonzero(~(squared[:, 0] <= LONGEST))[0])
    raise InputError(
      f"{side} vector {bad + 1} is not finite, or too long for float32 (its squared length is "
      f"{squared[bad, 0]:g}): the model has diverged; take another checkpoint"
    )
  if similarity == "dot":
    return vectors
  if similarity == "cosine":
    return (vectors / np.sqrt(np.where(squared > 0, squared, 1.0))).astype(np.float32)
  if side == "query":
    return np.concatenate([2 * vectors, np.ones_like(squared, np.float32)], 1)
  return np.concatenate([vectors, -squared.astype(np.float32)], 1)


def rounding(prepared: np.ndarray) -> float:
  """Bound how far a float32 score of prepared vectors `[n, w]` is off, for a query of length 1."""
  lengths = np.linalg.norm(prepared.astype(np.float64), axis=1)
  return 2 * (prepared.shape[1] + 2) * float(np.finfo(np.float32).eps * lengths.max(initial=0))


def reported(
  result: SearchResult, queries: np.ndarray, pool: np.ndarray, similarity: str
) -> np.ndarray:
  """Return the scores `[q, k]` that were found, as the model's own: for `euclidean` −‖q − p‖.

  Distances are computed anew from the model's vectors, without the products' cancellation. Where they
  round otherwise, they give way by the smallest step: order and ties are those of the products.
  """
  if similarity != "euclidean":
    return result.scores
  scores = np.full_like(result.scores, -np.inf)
  for its, query, entries in zip(scores, queries, result.entries, strict=True):
    there = entries != NONE
    gap = pool[entries[there]].astype(np.float64) - query
    its[there] = -np.linalg.norm(gap, axis=1)
  for at in range(1, scores.shape[1]):
    before = scores[:, at - 1]
    lower = np.minimum(scores[:, at], np.nextafter(before, np.float32(-np.inf)))
    tie = result.scores[:, at] == result.scores[:, at - 1]
    scores[:, at] = np.where(tie, before, lower)
  return scores


class Searcher:
  """Search any pool and queries with one compiled program a width d, k and r.

  Args:
    mesh: over whose devices the rows of a block are spread; k: how many entries are returned.
    rows: of the pool a device and block, at least k; queries: in a block.

  """

  def __init__(self, mesh: Mesh, *, k: int, rows: int = ROWS, queries: int = QUERIES):
    self.mesh, self.k, self.rows, self.queries = mesh, k, max(rows, k), queries
    self._step, self._merge = _programs(mesh, k)

  def __call__(
    self,
    queries: np.ndarray,
    pool: Rows,
    *,
    weights: np.ndarray | None = None,
    right: Sequence[Sequence[Sequence[int]]] | None = None,
  ) -> SearchResult:
    """Search `pool` `[n, d]` for `queries` `[q, d]` by inner product, at the highest precision.

    Args:
      weights: whole numbers `[n]`: how often an entry counts where entries are counted.
      right: for each of t judgements, the numbers of the right entries of each query, one or more;
        None: nothing is counted, and one sweep is enough.

    """
    right_ids, parts = _tables(right, len(queries)), []
    for at in range(0, len(queries), self.queries):
      part = slice(at, at + self.queries)
      vectors = np.zeros((self.queries, queries.shape[1]), np.float32)
      ids = np.full((self.queries, *right_ids.shape[1:]), NONE, np.int32)
      vectors[: len(queries[part])], ids[: len(right_ids[part])] = queries[part], right_ids[part]
      parts.append(put((vectors, ids), NamedSharding(self.mesh, P())))
    unreached = np.full((self.queries, right_ids.shape[1]), np.inf, np.float32)
    first = second = self._sweep(parts, pool, weights, [unreached] * len(parts))
    if right is not None:
      best = [np.asarray(part[2]).max(2) for part in first]
      second = self._sweep(parts, pool, weights, best)
    for one, other in zip(first, second, strict=True):
      if not np.array_equal(np.asarray(one[2]), np.asarray(other[2])):
        raise RuntimeError("two sweeps over one pool gave different scores: its rows changed")
    joined = []
    for i, sweep in enumerate((first, first, first, second, second)):
      joined.append(np.concatenate([np.asarray(part[i]) for part in sweep])[: len(queries)])
    return SearchResult(*joined[:3], joined[3].astype(np.int64), joined[4].astype(np.int64))

  def _sweep(
    self, parts: Sequence, pool: Rows, weights: np.ndarray | None, thresholds: Sequence[np.ndarray]
  ) -> list:
    """Pass over the pool once; return for each block of queries the merged (scores, …, level)."""
    over, states = NamedSharding(self.mesh, P(AXES)), []
    thresholds = [put(t, NamedSharding(self.mesh, P())) for t in thresholds]
    for _, ids in parts:
      shape, (judgements, right) = (self.mesh.size, self.queries), ids.shape[1:]
      empty = (
        np.full((*shape, self.k), -np.inf, np.float32),
        np.full((*shape, self.k), NONE, np.int32),
        np.full((*shape, judgements, right), -np.inf, np.float32),
        np.zeros((*shape, judgements), np.int32),
        np.zeros((*shape, judgements), np.int32),
      )
      states.append(put(empty, over))
    size = self.rows * self.mesh.size
    for start in range(0, pool.shape[0], size):
      block = np.asarray(pool[start : start + size], np.float32)
      weight = np.zeros(size, np.int32)  # 0 of padding
      weight[: len(block)] = 1 if weights is None else weights[start : start + size]
      if len(block) < size:
        block = np.pad(block, ((0, size - len(block)), (0, 0)))
      placed = put((block, weight), over)  # while the block before is searched
      jax.block_until_ready(states)  # else blocks would queue up on the devices
      for i, (vectors, ids) in enumerate(parts):
        states[i] = self._step(states[i], vectors, ids, thresholds[i], *placed, np.int32(start))
    return [self._merge(state) for state in states]


def _tables(right: Sequence[Sequence[Sequence[int]]] | None, queries: int) -> np.ndarray:
  """Return right entries `[q, t, r]`, r a power of two, so that few widths are compiled."""
  if right is None:
    return np.full((queries, 1, 1), NONE, np.int32)
  most = max((len(entries) for one in right for entries in one), default=1)
  table = np.full((queries, len(right), 1 << max(most - 1, 0).bit_length()), NONE, np.int32)
  for t, one in enumerate(right):
    for i, entries in enumerate(one):
      table[i, t, : len(entries)] = entries
  return table


@functools.cache
def _programs(mesh: Mesh, k: int):
  """Return the jitted step and merge; kept, so that each search compiles nothing anew."""
  over, whole = P(AXES), P()
  step = jax.shard_map(
    functools.partial(_step, k),
    mesh=mesh,
    out_specs=(over,) * 5,
    in_specs=((over,) * 5, whole, whole, whole, over, over, whole),
  )
  merge = jax.jit(functools.partial(_merged, k), out_shardings=NamedSharding(mesh, whole))
  return jax.jit(step, donate_argnums=0, out_shardings=NamedSharding(mesh, over)), merge


def _step(k: int, state, queries, right, threshold, block, weight, start):
  """Search one block of the pool on one device: `state` leads with an axis of 1."""
  best, entries, scores_of_right, above, level = (x[0] for x in state)
  rows = len(weight)
  start = start + rows * jax.lax.axis_index(AXES)
  scores = jnp.matmul(queries, block.T, precision=jax.lax.Precision.HIGHEST)
  scores = jnp.where(scores == 0, 0.0, scores)  # −0 and 0 tie, which top_k would put in order
  scores = jnp.where(weight[None] > 0, scores, -jnp.inf)
  values, at = jax.lax.top_k(scores, k)
  # Earlier entries stand first, and top_k keeps the first of equal ones.
  values = jnp.concatenate([best, values], 1)
  numbers = jnp.concatenate([entries, at.astype(jnp.int32) + start], 1)
  best, chosen = jax.lax.top_k(values, k)
  entries = jnp.where(best > -jnp.inf, jnp.take_along_axis(numbers, chosen, 1), NONE)
  local = right - start
  here = (right != NONE) & (local >= 0) & (local < rows)
  place = jnp.clip(local, 0, rows - 1).reshape(len(queries), -1)
  gathered = jnp.take_along_axis(scores, place, 1).reshape(right.shape)
  scores_of_right = jnp.where(here, gathered, scores_of_right)
  total = lambda chosen: jnp.sum(jnp.where(chosen, weight[None], 0), 1, dtype=jnp.int32)
  limits = [threshold[:, t, None] for t in range(threshold.shape[1])]
  above = above + jnp.stack([total(scores > limit) for limit in limits], 1)
  level = level + jnp.stack([total(scores == limit) for limit in limits], 1)
  return tuple(x[None] for x in (best, entries, scores_of_right, above, level))


def _merged(k: int, state):
  """Merge all devices' `[device, q, …]` into one result; equal scores by number of the entry."""
  best, entries, right, above, level = state
  flat = lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1)  # [q, device · k]
  order = jnp.where(flat(entries) == NONE, jnp.iinfo(jnp.int32).max, flat(entries))
  values, _, numbers = jax.lax.sort((-flat(best), order, flat(entries)), num_keys=2)
  return (
    -values[:, :k],
    numbers[:, :k],
    right.max(0),
    above.sum(0, dtype=jnp.int32),
    level.sum(0, dtype=jnp.int32),
  )
