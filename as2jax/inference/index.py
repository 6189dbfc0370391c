"""Documents to be searched exactly, by the vectors of a model or by words."""

from collections.abc import Callable, Sequence
from typing import Protocol

import jax
import numpy as np

from as2jax.evaluation import exact_search, retrieval
from as2jax.inference.hit import Hit
from as2jax.runtime.errors import InputError


class Encoder(Protocol):
  """What an index of vectors needs of a ranker."""

  @property
  def similarity(self) -> str:
    """The name of the score that ranks."""
    ...

  @property
  def mesh(self) -> jax.sharding.Mesh:
    """The devices that search."""
    ...

  def encode_query(self, texts: Sequence[str]) -> np.ndarray:
    """Vectors `[n, d]` of questions."""
    ...

  def encode_document(self, texts: Sequence[str]) -> np.ndarray:
    """Vectors `[n, d]` of documents."""
    ...


class Index:
  """Documents, searched by `search`.

  Attributes:
    texts, ids: of the documents.

  """

  def __init__(self, texts: Sequence[str], ids: Sequence[str] | None):
    self.texts = tuple(texts)
    self.ids = tuple(map(str, range(len(self.texts)))) if ids is None else tuple(ids)
    if not self.texts or len(self.texts) != len(self.ids):
      raise InputError(
        f"{len(self.texts)} texts and {len(self.ids)} ids: give one text or more, and an id of each"
      )

  def __len__(self) -> int:
    return len(self.texts)

  def search(self, query: str, k: int = 10) -> list[Hit]:
    """The k documents with the greatest scores, best first; equal scores in the documents' order."""
    return self.search_many([query], k)[0]

  def search_many(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
    """What `search` finds for each query."""
    if k < 1:
      raise InputError(f"k = {k}: give 1 or more")
    found = self._search(queries, min(k, len(self))) if len(queries) else []
    return [
      [Hit(int(i), float(s), self.texts[i], self.ids[i]) for i, s in zip(entries, scores)]
      for entries, scores in found
    ]

  def _search(self, queries: Sequence[str], k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each query the positions of the best documents, and their scores."""
    raise NotImplementedError


class VectorIndex(Index):
  """Documents by their vectors, each encoded once.

  Raises:
    InputError: a score by which a pool cannot be searched.

  """

  def __init__(self, texts: Sequence[str], ids: Sequence[str] | None, encoder: Encoder):
    super().__init__(texts, ids)
    self.encoder = encoder
    if encoder.similarity not in exact_search.SIMILARITIES:
      raise InputError(
        f"model.score = {encoder.similarity!r}: documents can be searched by "
        f"{', '.join(exact_search.SIMILARITIES)}; train with --config.model.score set to one"
      )
    self.vectors = encoder.encode_document(self.texts)
    self._prepared = exact_search.prepared(self.vectors, encoder.similarity, side="pool")

  def _search(self, queries: Sequence[str], k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    similarity = self.encoder.similarity
    vectors = self.encoder.encode_query(queries)
    # One program for every k up to 16, 32, …, and for one query or a block of them.
    searcher = exact_search.Searcher(
      self.encoder.mesh,
      k=max(16, 1 << (k - 1).bit_length()),
      queries=1 if len(queries) == 1 else exact_search.QUERIES,
    )
    prepared = exact_search.prepared(vectors, similarity, side="query")
    entries = searcher(prepared, self._prepared).entries
    found = []
    for vector, chosen in zip(vectors, entries, strict=True):
      chosen = chosen[chosen != exact_search.NONE][:k]
      found.append((chosen, _scores(vector, self.vectors[chosen], similarity)))
    return found


def _scores(query: np.ndarray, documents: np.ndarray, similarity: str) -> np.ndarray:
  """The scores of documents `[k, d]`, as the model's own: −‖u − v‖, cosine, inner product."""
  query, documents = query.astype(np.float64), documents.astype(np.float64)
  if similarity == "euclidean":
    return -np.linalg.norm(documents - query, axis=1)
  scores = documents @ query
  if similarity == "cosine":
    lengths = np.linalg.norm(documents, axis=1) * np.linalg.norm(query)
    scores = scores / np.where(lengths > 0, lengths, 1.0)
  return scores


class WordIndex(Index):
  """Documents by their words.

  Args:
    scorer: makes of the texts the function from a question to the scores of all of them.

  """

  def __init__(
    self,
    texts: Sequence[str],
    ids: Sequence[str] | None,
    scorer: Callable[[Sequence[str]], Callable[[str], np.ndarray]],
  ):
    super().__init__(texts, ids)
    self._score = scorer(self.texts)

  def _search(self, queries: Sequence[str], k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    found = []
    for query in queries:
      scores = self._score(query)
      best = retrieval.best(scores, k)
      found.append((best, scores[best]))
    return found
