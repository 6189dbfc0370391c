"""The vectors of all parts of an index as one array, which is never made."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from as2jax.evaluation import exact_search
from as2jax.inference.index_part import Part


class Rows:
  """The vectors of all parts as one array `[n, d]` that is never made (`exact_search.Rows`)."""

  def __init__(self, parts: Sequence[Part]):
    self._parts = parts
    self._vectors = [part.vectors for part in parts if part.vectors is not None]
    self._starts = np.cumsum([0, *map(len, parts)])

  @property
  def shape(self) -> tuple[int, int]:
    """`[rows, d]`."""
    return int(self._starts[-1]), self._vectors[0].shape[1]

  def __getitem__(self, rows: slice) -> np.ndarray:
    return _joined(list(_pieces(self._vectors, self._starts, rows)))

  def narrowed(self) -> "NarrowRows":
    """The same rows in fewer bits."""
    return NarrowRows([part.narrow for part in self._parts], self._starts, self.shape)

  def holds_the_best(self, query: np.ndarray, entries: np.ndarray, k: int, lowest: float) -> bool:
    """Whether the best k of all are among the entries that a search on the device has found.

    Args:
      query: prepared.
      entries: what was found.
      lowest: the score of the last of them, −∞ where all rows were found.

    """
    exact = self.take(entries).astype(np.float64) @ query.astype(np.float64)
    error = float(np.linalg.norm(query.astype(np.float64))) * max(p.error for p in self._parts)
    return bool(np.partition(exact, -k)[-k] > lowest + error)

  def best(self, scores_of: Callable[[np.ndarray], np.ndarray], k: int) -> np.ndarray:
    """Positions of the k rows of greatest score, equal ones in ascending order, read block by block.

    Args:
      scores_of: from rows `[n, d]` to their scores `[n]`, float64.

    """
    entries, scores = np.zeros(0, np.int64), np.zeros(0)
    for start in range(0, self.shape[0], exact_search.ROWS):
      block = scores_of(self[start : start + exact_search.ROWS])
      entries = np.concatenate([entries, start + np.arange(len(block))])
      scores = np.concatenate([scores, block])
      kept = np.lexsort((entries, -scores))[:k]
      entries, scores = entries[kept], scores[kept]
    return entries

  def take(self, entries: np.ndarray) -> np.ndarray:
    """The rows at some positions."""
    its = np.searchsorted(self._starts, entries, "right") - 1
    return np.stack([self._vectors[p][i - self._starts[p]] for i, p in zip(entries, its)])


class NarrowRows:
  """The vectors of all parts in fewer bits (`exact_search.Rows`)."""

  def __init__(
    self, parts: Sequence[exact_search.Narrow | None], starts: np.ndarray, shape: tuple[int, int]
  ):
    self._columns = [[part[i] for part in parts if part is not None] for i in range(3)]
    self._starts, self.shape = starts, shape

  def __getitem__(self, rows: slice) -> exact_search.Narrow:
    columns = (_joined(list(_pieces(column, self._starts, rows))) for column in self._columns)
    return exact_search.Narrow(*columns)


def _pieces(arrays: Sequence[np.ndarray], starts: np.ndarray, rows: slice) -> Iterator[np.ndarray]:
  """What the parts, which begin at `starts`, have of some rows."""
  first, last, _ = rows.indices(int(starts[-1]))
  for start, array in zip(starts, arrays):
    if start < last and start + len(array) > first:
      yield array[max(first - start, 0) : last - start]


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
  return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
