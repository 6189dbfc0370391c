"""Documents to be searched exactly, by the vectors of a model or by words.

Each document is encoded once. An index with a path is a folder of parts, which are memory-mapped:
what an interrupted call has encoded is found by the next one, and more can be appended. Documents
are known by a digest of texts and ids, the model by one of its parameters, tokeniser and settings.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import operator
import os
import pathlib
import shutil
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from as2jax.data.record import Candidate, Question
from as2jax.evaluation import exact_search, retrieval
from as2jax.inference import narrow
from as2jax.inference.hit import Hit
from as2jax.inference.index_part import Part, parts_of
from as2jax.inference.index_rows import Rows
from as2jax.runtime import folder_lock, registry, regular_files
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

CONTENT = "index.json"
FORMAT = 2
KINDS = {  # of what CONTENT holds, by key
  "storage": str,
  "parts": list,
  "source": str | None,
  "seed": int | None,
  "dtype": str,
  "ranker": str,
}
DEPTH = 100  # documents that a second ranker ranks again
DEEPEST = 4096  # documents that the device finds of a query, before all are scored in float64
SECONDS = 5.0  # between two lines of progress

Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)


class Encoder(Protocol):
  """What an index needs of a ranker: `as2jax.inference.ranker.Ranker` documents it."""

  source: str

  @property
  def name(self) -> str: ...  # noqa: D102
  @property
  def seed(self) -> int | None: ...  # noqa: D102
  @property
  def dtype(self) -> str: ...  # noqa: D102
  @property
  def fingerprint(self) -> str: ...  # noqa: D102
  @property
  def has_vectors(self) -> bool: ...  # noqa: D102
  @property
  def similarity(self) -> str: ...  # noqa: D102
  @property
  def mesh(self) -> jax.sharding.Mesh: ...  # noqa: D102
  def encode_query(self, texts: Sequence[str]) -> np.ndarray: ...  # noqa: D102
  def encode_document(self, texts: Sequence[str]) -> np.ndarray: ...  # noqa: D102
  def over_pool(self, texts: Sequence[str]) -> Callable[[str], np.ndarray]: ...  # noqa: D102
  def rank_each(self, questions: Sequence[Question]) -> list[list[Hit]]: ...  # noqa: D102
  def warm_up(self) -> None: ...  # noqa: D102


class Index:
  """Documents, searched by `search`; made by `Ranker.index`, opened again by `Index.open`.

  Attributes:
    ranker: the model that encodes queries (or ranks by words).
    path: the folder, None for an index in memory.
    storage: of the vectors that are searched, one of `narrow.STORAGE`.

  """

  def __init__(
    self, ranker: Encoder, path: str | os.PathLike | None = None, storage: str = "float32"
  ):
    """An index without documents yet; `add` brings them.

    Raises:
      InputError: the folder holds other files, or the ranker's score cannot be searched.

    """
    narrow.check(storage)
    self.ranker, self.storage = ranker, storage
    self.path = None if path is None else _local(path)
    if self.path is not None and _holds_others(self.path):
      raise InputError(f"{path} is not empty and holds no index: give a new folder")
    self._parts: tuple[Part, ...] = ()
    self._starts = np.zeros(1, np.int64)
    self._words: tuple[tuple[Part, ...], Callable[[str], np.ndarray]] | None = None
    self._adding = threading.Lock()
    if ranker.has_vectors and ranker.similarity not in exact_search.SIMILARITIES:
      raise InputError(
        f"model.score = {ranker.similarity!r}: documents can be searched by "
        f"{', '.join(exact_search.SIMILARITIES)}; train with --config.model.score set to one"
      )

  @classmethod
  def make(
    cls,
    ranker: Encoder,
    texts: Sequence[str],
    ids: Sequence[str] | None,
    path: str | os.PathLike | None,
    progress: Progress | None,
    storage: str = "float32",
  ) -> "Index":
    """See `Ranker.index`."""
    index = cls(ranker, path, storage)
    if index.path is not None and (index.path / CONTENT).exists():
      index = cls.open(index.path, ranker=ranker)
      if index.storage != storage:
        raise InputError(
          f"{path} is an index whose vectors are searched in {index.storage}, not {storage}: give "
          "another path, or the same storage"
        )
      if len(index):
        new_parts = parts_of(texts, ids, 0)
        if [part.digest for part in index._parts] != [part.digest for part in new_parts]:
          raise InputError(
            f"{path} is an index of {len(index)} other documents: give another folder, or append to "
            "it in Python, as2jax.Index.open(folder).add(texts)"
          )
        return index
    index.add(texts, ids=ids, progress=progress)
    return index

  @classmethod
  def open(cls, path: str | os.PathLike, *, ranker: Encoder | None = None) -> "Index":
    """Opens an index by its folder.

    Args:
      path: the folder.
      ranker: the model that made it; None: it is loaded from where it was.

    Raises:
      InputError: no index lies there, a part is damaged, or another model made it.

    """
    folder = _local(path)
    if not (folder / CONTENT).exists():
      raise InputError(f"{path} is no index (no {CONTENT}): as2jax index or Ranker.index makes one")
    content = regular_files.read_object(folder / CONTENT, "put it back, or make the index anew")
    if content.get("format") not in (None, FORMAT):
      raise InputError(f"{path}: an index of format {content['format']!r}; make it anew")
    for key, kinds in KINDS.items():
      if not isinstance(content.get(key, ...), kinds):
        raise InputError(
          f"{folder / CONTENT}: {key} is {content.get(key, 'missing')!r}: it was changed by hand "
          "or is of an earlier version; put it back, or make the index anew"
        )
    storage, parts, source, seed, dtype, made_by = (content[key] for key in KINDS)
    if ranker is None:
      if not source:
        raise InputError(f"{path}: the model was not opened by as2jax.load: give it as `ranker`")
      options = {} if seed is None else {"seed": seed}
      ranker = registry.resolve("as2jax.inference.open:load")(source, dtype=dtype, **options)
    if ranker.fingerprint != made_by:
      raise InputError(
        f"{path} was made with other parameters, tokeniser or settings than those of "
        f"{ranker.source or ranker.name} ({made_by[:12]}, not {ranker.fingerprint[:12]}): its "
        "vectors cannot be compared with this model's; make the index anew"
      )
    index = cls(ranker, folder, storage)
    read_parts = []
    for number, digest in enumerate(parts):
      part = Part.read(index._place(number))
      if part is None or part.digest != digest:
        raise InputError(f"{index._place(number)} is damaged or missing: make the index anew")
      read_parts.append(part)
    index._take(read_parts)
    return index

  def __len__(self) -> int:
    return int(self._starts[-1])

  @property
  def texts(self) -> list[str]:
    """Of all documents."""
    return [part.text(i) for part in self._parts for i in range(len(part))]

  @property
  def ids(self) -> list[str]:
    """Of all documents."""
    return [part.id(i) for part in self._parts for i in range(len(part))]

  def add(
    self,
    texts: Sequence[str],
    *,
    ids: Sequence[str] | None = None,
    progress: Progress | None = None,
  ) -> None:
    """Encodes documents and appends them: all of them or, where it is interrupted, none.

    The same call again finds on disk what an interrupted one has encoded.

    Args:
      texts: the documents.
      ids: of them, unlike all others; None: their positions.
      progress: called with the numbers of documents done and to do, after each part.

    Raises:
      InputError: no texts, an empty one, another number of ids, an id that occurs twice, a folder to
        which another process adds, or has added since it was opened.

    """
    with self._adding, self._alone():
      documents = parts_of(texts, ids, len(self))
      self._check_ids(documents)
      if self.path is not None:
        self._write_content(self._parts)
      added, count, done = [], sum(map(len, documents)), 0
      said = time.monotonic()
      for number, part in enumerate(documents, len(self._parts)):
        added.append(self._encoded(part, number))
        done += len(part)
        if progress:
          progress(done, count)
        elif time.monotonic() > said + SECONDS:
          log.info("%d of %d documents encoded", done, count)
          said = time.monotonic()
      parts = (*self._parts, *added)
      if self.path is not None:
        self._write_content(parts)
      self._take(parts)

  def save(self, path: str | os.PathLike) -> None:
    """Writes the index to a new folder, from which `Index.open` reads it."""
    folder = _local(path)
    if (folder / CONTENT).exists():
      raise InputError(f"{path} holds an index: give another path")
    copy = Index(self.ranker, folder, self.storage)
    copy._write_content(())
    copy._take([part.write(copy._place(i)) for i, part in enumerate(self._parts)])
    copy._write_content(copy._parts)

  def search(
    self, query: str, k: int = 10, *, rerank: Encoder | None = None, depth: int = DEPTH
  ) -> list[Hit]:
    """The k documents with the greatest scores, best first; equal scores in the documents' order.

    Args:
      query: a question.
      k: how many.
      rerank: another ranker (a cross-encoder), which ranks the best `depth` documents again; hits
        then have its scores.
      depth: see `rerank`; at least k are ranked again.

    """
    return self.search_many([query], k, rerank=rerank, depth=depth)[0]

  def search_many(
    self, queries: Sequence[str], k: int = 10, *, rerank: Encoder | None = None, depth: int = DEPTH
  ) -> list[list[Hit]]:
    """What `search` finds for each query."""
    k, depth = operator.index(k), operator.index(depth)  # a number of numpy's, too
    if k < 1 or depth < 1:
      raise InputError(f"k = {k}, depth = {depth}: give 1 or more")
    if not len(queries):
      return []
    parts = self._parts
    if not parts:
      raise InputError("the index holds no documents yet: add some")
    starts = np.cumsum([0, *map(len, parts)])
    nearest = self._search(queries, min(max(k, depth) if rerank else k, int(starts[-1])), parts)
    hits = []
    for entries, scores in nearest:
      its = np.searchsorted(starts, entries, "right") - 1
      hits.append(
        [
          Hit(int(i), float(s), parts[p].text(i - starts[p]), parts[p].id(i - starts[p]))
          for i, s, p in zip(entries, scores, its, strict=True)
        ]
      )
    if rerank is None:
      return hits
    asked = [
      Question(str(i), query, tuple(Candidate(str(n), hit.text) for n, hit in enumerate(its)))
      for i, (query, its) in enumerate(zip(queries, hits, strict=True))
    ]
    return [
      [dataclasses.replace(its[again.index], score=again.score) for again in ranked[:k]]
      for its, ranked in zip(hits, rerank.rank_each(asked), strict=True)
    ]

  def _search(
    self, queries: Sequence[str], k: int, parts: tuple[Part, ...]
  ) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each query the positions of the best documents, and their scores."""
    if not self.ranker.has_vectors:
      return self._by_words(queries, k, parts)
    vectors = self.ranker.encode_query(queries)
    rows = Rows(parts)
    results = []
    for vector, chosen in zip(vectors, self._nearest(vectors, k, rows), strict=True):
      scores = _scores(vector, rows.take(chosen), self.ranker.similarity)
      order = np.lexsort((chosen, -scores))[:k]
      results.append((chosen[order], scores[order]))
    return results

  def _nearest(self, vectors: np.ndarray, k: int, rows: Rows) -> list[np.ndarray]:
    """For each query vector the positions of documents among which its best k are."""
    prepared = exact_search.prepared(vectors, self.ranker.similarity, side="query")
    searched = rows if self.storage == "float32" else rows.narrowed()
    # One program for every k up to 16, 32, …, and for one query or a block of them. Twice as many are
    # found as wanted: float32 orders near-equal distances by rounding, float64 then as they are.
    count = max(32, 1 << (2 * k - 1).bit_length())
    found: list[np.ndarray] = [np.zeros(0, np.int32)] * len(vectors)
    left = list(range(len(vectors)))
    while left and count <= DEEPEST:
      searcher = exact_search.Searcher(
        self.ranker.mesh, k=count, queries=1 if len(left) == 1 else exact_search.QUERIES
      )
      result, unsure = searcher(prepared[left], searched), []
      for i, entries, scores in zip(left, result.entries, result.scores, strict=True):
        found[i] = entries[entries != exact_search.NONE]
        if not rows.holds_the_best(prepared[i], found[i], k, float(scores[-1])):
          unsure.append(i)
      left, count = unsure, 8 * count
    for i in left:
      scores_of = functools.partial(_scores, vectors[i], similarity=self.ranker.similarity)
      found[i] = rows.best(scores_of, k)
    return found

  def _by_words(
    self, queries: Sequence[str], k: int, parts: tuple[Part, ...]
  ) -> list[tuple[np.ndarray, np.ndarray]]:
    words = self._words  # another thread may search with documents that were added since
    if words is None or words[0] is not parts:
      texts = [part.text(i) for part in parts for i in range(len(part))]
      self._words = words = parts, self.ranker.over_pool(texts)
    results = []
    for query in queries:
      scores = words[1](query)
      best = retrieval.best(scores, k)
      results.append((best, scores[best]))
    return results

  @contextlib.contextmanager
  def _alone(self) -> Generator[None, None, None]:
    """Keeps other processes from adding to the folder, where there is one."""
    if self.path is None:
      yield
      return
    with folder_lock.lock(self.path, f"the index {self.path}"):
      if (self.path / CONTENT).exists():
        there = regular_files.read_object(self.path / CONTENT, "make the index anew").get("parts")
        if there != [part.digest for part in self._parts]:
          raise InputError(f"another process has added to {self.path}: open the index again")
      yield

  def _encoded(self, part: Part, number: int) -> Part:
    """A part with its vectors; from disk, where an interrupted call has left it."""
    if self.path is not None:
      there = Part.read(self._place(number)) if self._place(number).exists() else None
      if there is not None and there.digest == part.digest and there.made_by == self._made_by:
        return there
    if self.ranker.has_vectors:
      vectors = self.ranker.encode_document([part.text(i) for i in range(len(part))])
      prepared = exact_search.prepared(vectors, self.ranker.similarity, side="pool")
      part = dataclasses.replace(part, vectors=prepared, error=narrow.rounding(prepared))
      if self.storage != "float32":
        of = narrow.narrowed(prepared, self.storage, self.ranker.similarity)
        part = dataclasses.replace(part, narrow=of[0], error=of[1])
    part = dataclasses.replace(part, made_by=self._made_by)
    if self.path is None:
      return part
    shutil.rmtree(self._place(number), ignore_errors=True)  # of other documents
    return part.write(self._place(number))

  @property
  def _made_by(self) -> str:
    return self.ranker.fingerprint

  def _take(self, parts: Sequence[Part]) -> None:
    starts = np.cumsum([0, *map(len, parts)])
    self._parts, self._starts = tuple(parts), starts

  def _place(self, number: int) -> pathlib.Path:
    assert self.path is not None, "an index in memory has no files"
    return self.path / f"part-{number:06d}"

  def _write_content(self, parts: Sequence[Part]) -> None:
    content = {
      "format": FORMAT,
      "storage": self.storage,
      "source": self.ranker.source,
      "seed": self.ranker.seed,
      "dtype": self.ranker.dtype,
      "ranker": self._made_by,
      "documents": sum(map(len, parts)),
      "parts": [part.digest for part in parts],
    }
    assert self.path is not None, "an index in memory has no files"
    try:
      write_whole(self.path / CONTENT, json.dumps(content, indent=2) + "\n")
    except OSError as error:
      raise InputError(f"{self.path} cannot be written: {error}") from error

  def _check_ids(self, added: Sequence[Part]) -> None:
    seen: set[str] = set()
    for part in (*self._parts, *added):
      for i in range(len(part)):
        if (name := part.id(i)) in seen:
          raise InputError(f"the id {name!r} occurs twice: give each document its own")
        seen.add(name)


def _scores(query: np.ndarray, prepared: np.ndarray, similarity: str) -> np.ndarray:
  """The scores of prepared documents `[k, d]` as the model's own: −‖u − v‖, cosine, inner product."""
  query, documents = query.astype(np.float64), prepared.astype(np.float64)
  if similarity == "euclidean":
    return -np.linalg.norm(documents[:, :-1] - query, axis=1)
  scores = documents @ query
  if similarity == "cosine":
    length = np.linalg.norm(query)
    scores = scores / (length if length > 0 else 1.0)
  return scores


def _holds_others(folder: pathlib.Path) -> bool:
  """Whether a folder has files and no index; hidden ones may be those of a write that was stopped."""
  if (folder / CONTENT).exists() or not folder.is_dir():
    return False
  return any(not path.name.startswith(".") for path in folder.iterdir())


def _local(path: Any) -> pathlib.Path:
  if "://" in str(path):
    raise InputError(f"{path}: an index lies on a local disk, to be memory-mapped")
  return pathlib.Path(path).expanduser().absolute()
