"""Documents to be searched exactly, by the vectors of a bi-encoder or by words.

Each document is encoded once. An index with a path is a folder of parts, which are memory-mapped: the
next call finds what an interrupted one has encoded, and more can be appended. Documents are
identified by a digest of texts and ids, the model by its fingerprint.
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
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from as2jax.data.record import Candidate, Question
from as2jax.evaluation import exact_search, retrieve
from as2jax.inference.index_part import Hit, Part, Rows, parts_of
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import lock, read_object, write_whole

Ranker = Any  # `as2jax.inference.ranker.Ranker`, which makes indexes
CONTENT = "index.json"
FORMAT = 3
FIELDS = {  # of CONTENT, with their types
  "parts": list,
  "source": str | None,
  "seed": int | None,
  "dtype": str,
  "ranker": str,
}
DEPTH = 100  # documents that a second ranker ranks again
DEEPEST = 4096  # documents that the device finds of a query, before all are scored in float64

Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)


class Index:
  """Documents, searched by `search`; made by `Ranker.index`, opened again by `Index.open`.

  Attributes:
    ranker: the model that encodes queries (or ranks by words).
    path: the folder, None for an index in memory.

  """

  def __init__(self, ranker: Ranker, path: str | os.PathLike | None = None):
    """Makes an index without documents; `add` brings them.

    Raises:
      InputError: the folder holds other files, or the ranker's score cannot be searched.

    """
    self.ranker = ranker
    self.path = None if path is None else _local(path)
    if self.path is not None and _holds_others(self.path):
      raise InputError(f"{path} is not empty and holds no index: give a new folder")
    self._rows = Rows(())
    self._words: tuple[Rows, Callable[[str], np.ndarray]] | None = None
    self._adding = threading.Lock()
    if ranker.has_vectors and ranker.similarity not in exact_search.SIMILARITIES:
      raise InputError(
        f"model.score = {ranker.similarity!r}: documents can be searched by "
        f"{', '.join(exact_search.SIMILARITIES)}; train with --config.model.score set to one"
      )

  @classmethod
  def make(
    cls,
    ranker: Ranker,
    texts: Sequence[str],
    ids: Sequence[str] | None = None,
    path: str | os.PathLike | None = None,
    progress: Progress | None = None,
  ) -> "Index":
    """Makes an index of documents, or goes on with an interrupted one (`Ranker.index`)."""
    index = cls(ranker, path)
    if index.path is not None and (index.path / CONTENT).exists():
      index = cls.open(index.path, ranker=ranker)
      if len(index):
        if index._digests != [part.digest for part in parts_of(texts, ids, 0)]:
          raise InputError(
            f"{path} is an index of {len(index)} other documents: give another folder, or append to "
            "it in Python, as2jax.Index.open(folder).add(texts)"
          )
        return index
    index.add(texts, ids=ids, progress=progress)
    return index

  @classmethod
  def open(cls, path: str | os.PathLike, *, ranker: Ranker | None = None) -> "Index":
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
    content = _read_content(folder)
    if ranker is None:
      if not content["source"]:
        raise InputError(f"{path}: the model was not opened by as2jax.load: give it as `ranker`")
      options = {} if content["seed"] is None else {"seed": content["seed"]}
      load = registry.resolve("as2jax.inference.open:load")
      ranker = load(content["source"], dtype=content["dtype"], **options)
    if ranker.fingerprint != content["ranker"]:
      raise InputError(
        f"{path} was made with other parameters, tokeniser or settings than those of "
        f"{ranker.source or ranker.name} ({content['ranker'][:12]}, not {ranker.fingerprint[:12]}): "
        "its vectors cannot be compared with this model's; make the index anew"
      )
    index = cls(ranker, folder)
    parts = []
    for number, digest in enumerate(content["parts"]):
      part = Part.read(index._part_folder(number))
      if part is None or part.digest != digest:
        raise InputError(f"{index._part_folder(number)} is damaged or missing: make the index anew")
      parts.append(part)
    index._rows = Rows(parts)
    return index

  def __len__(self) -> int:
    return len(self._rows)

  @property
  def texts(self) -> list[str]:
    """Of all documents."""
    return [part.texts[i] for part in self._rows.parts for i in range(len(part))]

  @property
  def ids(self) -> list[str]:
    """Of all documents."""
    return [part.ids[i] for part in self._rows.parts for i in range(len(part))]

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
      added = parts_of(texts, ids, len(self))
      parts = list(self._rows.parts)
      _check_ids([*parts, *added])
      self._write_content(parts)
      count, done = sum(map(len, added)), 0
      for part in added:
        parts.append(self._encoded(part, len(parts)))
        done += len(part)
        (progress or _log)(done, count)
      self._write_content(parts)
      self._rows = Rows(parts)

  def search(
    self, query: str, k: int = 10, *, rerank: Ranker | None = None, depth: int = DEPTH
  ) -> list[Hit]:
    """Finds the k documents of greatest score, best first; equal scores in the documents' order.

    Args:
      query: a question.
      k: how many.
      rerank: another ranker (a cross-encoder), which ranks the best `depth` documents again; hits
        then have its scores.
      depth: see `rerank`; at least k are ranked again.

    """
    return self.search_many([query], k, rerank=rerank, depth=depth)[0]

  def search_many(
    self, queries: Sequence[str], k: int = 10, *, rerank: Ranker | None = None, depth: int = DEPTH
  ) -> list[list[Hit]]:
    """Finds for each query what `search` finds."""
    k, depth = operator.index(k), operator.index(depth)  # a number of numpy's, too
    if k < 1 or depth < 1:
      raise InputError(f"k = {k}, depth = {depth}: give 1 or more")
    if not len(queries):
      return []
    rows = self._rows  # another thread may add documents meanwhile
    if not rows.parts:
      raise InputError("the index holds no documents yet: add some")
    search = self._by_vectors if self.ranker.has_vectors else self._by_words
    hits = []
    for entries, scores in search(queries, min(max(k, depth) if rerank else k, len(rows)), rows):
      hits.append([rows.hit(entry, score) for entry, score in zip(entries, scores, strict=True)])
    if rerank is None:
      return hits
    questions = []
    for i, (query, found) in enumerate(zip(queries, hits, strict=True)):
      candidates = tuple(Candidate(str(n), hit.text) for n, hit in enumerate(found))
      questions.append(Question(str(i), query, candidates))
    results = []
    for found, ranked in zip(hits, rerank.rank_each(questions), strict=True):
      again = [dataclasses.replace(found[hit.index], score=hit.score) for hit in ranked[:k]]
      results.append(again)
    return results

  def _by_vectors(
    self, queries: Sequence[str], k: int, rows: Rows
  ) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns for each query the positions of the best documents, and their scores."""
    similarity = self.ranker.similarity
    vectors = self.ranker.encode_query(queries)
    prepared = exact_search.prepared(vectors, similarity, side="query")
    # One program for every k up to 16, 32, …, and for one query or a block of them. Twice as many are
    # found as wanted: float32 orders near-equal distances by rounding, float64 then as they are.
    count = max(32, 1 << (2 * k - 1).bit_length())
    found: list[np.ndarray] = [np.zeros(0, np.int32)] * len(vectors)
    sure = np.zeros(len(vectors), bool)
    if count <= DEEPEST:
      block = 1 if len(vectors) == 1 else exact_search.QUERIES
      result = exact_search.Searcher(self.ranker.mesh, k=count, queries=block)(prepared, rows)
      for i, entries in enumerate(result.entries):
        found[i] = entries[entries != exact_search.NONE]
        sure[i] = rows.hold_the_best(prepared[i], found[i], k, float(result.scores[i, -1]))
    for i in np.flatnonzero(~sure):
      found[i] = rows.best(functools.partial(_scores, vectors[i], similarity=similarity), k)
    results = []
    for vector, entries in zip(vectors, found, strict=True):
      scores = _scores(vector, rows.take(entries), similarity)
      order = np.lexsort((entries, -scores))[:k]
      results.append((entries[order], scores[order]))
    return results

  def _by_words(
    self, queries: Sequence[str], k: int, rows: Rows
  ) -> list[tuple[np.ndarray, np.ndarray]]:
    if (words := self._words) is None or words[0] is not rows:
      texts = [part.texts[i] for part in rows.parts for i in range(len(part))]
      self._words = words = rows, self.ranker.over_pool(texts)
    results = []
    for query in queries:
      scores = words[1](query)
      entries = retrieve.best(scores, k)
      results.append((entries, scores[entries]))
    return results

  @contextlib.contextmanager
  def _alone(self) -> Generator[None, None, None]:
    """Keeps other processes from adding to the folder, where there is one."""
    if self.path is None:
      yield
      return
    with lock(self.path, f"the index {self.path}"):
      if (self.path / CONTENT).exists() and _read_content(self.path)["parts"] != self._digests:
        raise InputError(f"another process has added to {self.path}: open the index again")
      yield

  @property
  def _digests(self) -> list[str]:
    return [part.digest for part in self._rows.parts]

  def _encoded(self, part: Part, number: int) -> Part:
    """Returns a part with its vectors; from disk, where an interrupted call has left it."""
    ranker = self.ranker
    if self.path is not None and self._part_folder(number).exists():
      stored = Part.read(self._part_folder(number))
      if stored and (stored.digest, stored.made_by) == (part.digest, ranker.fingerprint):
        return stored
    vectors, error = None, 0.0
    if ranker.has_vectors:
      vectors = ranker.encode_document([part.texts[i] for i in range(len(part))])
      vectors = exact_search.prepared(vectors, ranker.similarity, side="pool")
      error = exact_search.rounding(vectors)
    part = dataclasses.replace(part, vectors=vectors, error=error, made_by=ranker.fingerprint)
    if self.path is None:
      return part
    shutil.rmtree(self._part_folder(number), ignore_errors=True)  # of other documents
    return part.write(self._part_folder(number))

  def _part_folder(self, number: int) -> pathlib.Path:
    assert self.path is not None, "an index in memory has no files"
    return self.path / f"part-{number:06d}"

  def _write_content(self, parts: Sequence[Part]) -> None:
    if self.path is None:
      return
    content = {
      "format": FORMAT,
      "source": self.ranker.source,
      "seed": self.ranker.seed,
      "dtype": self.ranker.dtype,
      "ranker": self.ranker.fingerprint,
      "documents": sum(map(len, parts)),
      "parts": [part.digest for part in parts],
    }
    try:
      write_whole(self.path / CONTENT, json.dumps(content, indent=2) + "\n")
    except OSError as error:
      raise InputError(f"{self.path} cannot be written: {error}") from error


def _log(done: int, count: int) -> None:
  log.info("%d of %d documents encoded", done, count)


def _check_ids(parts: Sequence[Part]) -> None:
  """Refuses an id that occurs twice."""
  seen: set[str] = set()
  for part in parts:
    for i in range(len(part)):
      if (name := part.ids[i]) in seen:
        raise InputError(f"the id {name!r} occurs twice: give each document its own")
      seen.add(name)


def _scores(query: np.ndarray, prepared: np.ndarray, similarity: str) -> np.ndarray:
  """Scores prepared documents `[k, d]` in float64 as the model does: −‖u − v‖, cosine, product."""
  query, documents = query.astype(np.float64), prepared.astype(np.float64)
  if similarity == "euclidean":
    return -np.linalg.norm(documents[:, :-1] - query, axis=1)
  scores = documents @ query
  if similarity == "cosine":
    scores = scores / (np.linalg.norm(query) or 1.0)
  return scores


def _read_content(folder: pathlib.Path) -> dict[str, Any]:
  """Reads an index's CONTENT; InputError where it is not as it was written."""
  content = read_object(folder / CONTENT, "put it back, or make the index anew")
  if content.get("format") not in (None, FORMAT):
    raise InputError(f"{folder}: an index of format {content['format']!r}; make it anew")
  for key, types in FIELDS.items():
    if not isinstance(content.get(key, ...), types):
      raise InputError(
        f"{folder / CONTENT}: {key} is {content.get(key, 'missing')!r}: it was changed by hand "
        "or is of an earlier version; put it back, or make the index anew"
      )
  return content


def _holds_others(folder: pathlib.Path) -> bool:
  """Checks whether a folder has files and no index; hidden ones are of a write that was stopped."""
  if (folder / CONTENT).exists() or not folder.is_dir():
    return False
  return any(not path.name.startswith(".") for path in folder.iterdir())


def _local(path: Any) -> pathlib.Path:
  if "://" in str(path):
    raise InputError(f"{path}: an index lies on a local disk, to be memory-mapped")
  return pathlib.Path(path).expanduser().absolute()
