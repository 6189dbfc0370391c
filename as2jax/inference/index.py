"""Documents to be searched exactly, by the vectors of a bi-encoder or by words.

An index with a path is a folder of memory-mapped parts. A digest of texts and ids identifies the documents of a
part, the fingerprint of the ranker its model.
"""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import json
import numbers
import os
import pathlib
import shutil
import threading
from collections.abc import Callable, Generator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from as2jax.data.record import Candidate, Question
from as2jax.evaluation import exact_search, retrieve
from as2jax.runtime import cache, registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import lock, read_object, write_whole
from as2jax.runtime.shown import Shown

Ranker = Any  # `as2jax.inference.ranker.Ranker`, which makes indexes
CONTENT = "index.json"
FORMAT = 3
ADVICE = "put it back, or make the index anew"
FIELDS = {"parts": list, "source": str | None, "seed": int | None, "dtype": str, "ranker": str}
DOCUMENTS = 4096  # in a part: the most that an interruption loses
DEPTH = 100  # documents that a second ranker ranks again
DEEPEST = 4096  # documents that the device finds of a query, before all are scored in float64

Progress = Callable[[int, int], None]
Found = list[tuple[np.ndarray, np.ndarray]]  # positions of documents and their scores, a query


@dataclasses.dataclass(frozen=True)
class Hit:
  """One candidate of a ranking, or one document of an index.

  Attributes:
    index: its position among what was ranked.
    score: higher is better.
    text, id: as they were given.

  """

  index: int
  score: float
  text: str
  id: str


@dataclasses.dataclass(frozen=True)
class Part:
  """Some documents of an index, in memory or memory-mapped.

  Attributes:
    arrays: `text_bytes` (UTF-8) and `text_offsets` `[n + 1]`, where each text begins; `id_bytes` and
      `id_offsets`; `vectors` `[n, d]` float32, prepared for the search, unless words rank.
    digest: SHA-256 of texts and ids.
    made_by: the fingerprint of the model that encoded them.
    error: bound on the rounding of a float32 score, for a query of length 1.

  """

  arrays: Mapping[str, np.ndarray]
  digest: str
  made_by: str = ""
  error: float = 0.0

  def __len__(self) -> int:
    return len(self.arrays["text_offsets"]) - 1

  @classmethod
  def of(cls, texts: Sequence[str], ids: Sequence[str]) -> "Part":
    """Packs documents, without vectors; lone surrogates survive."""
    arrays, digest = {}, hashlib.sha256()
    for name, strings in (("text", texts), ("id", ids)):
      encoded = [one.encode("utf-8", "surrogatepass") for one in strings]
      offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
      arrays[f"{name}_bytes"] = np.frombuffer(b"".join(encoded), np.uint8)
      arrays[f"{name}_offsets"] = offsets
      digest.update(offsets.tobytes() + b"".join(encoded))
    return cls(arrays, digest.hexdigest())

  def string(self, name: str, i: int) -> str:
    """Returns the `text` or the `id` of a document."""
    first, last = self.arrays[f"{name}_offsets"][i : i + 2]
    return self.arrays[f"{name}_bytes"][first:last].tobytes().decode("utf-8", "surrogatepass")

  @classmethod
  def read(cls, folder: pathlib.Path) -> "Part | None":
    """Memory-maps what `write` wrote; None where not all of it is there."""
    stored = cache.read(folder, "part of an index")
    return None if stored is None else cls(stored.arrays, **stored.fields)

  def write(self, folder: pathlib.Path) -> "Part":
    """Writes the part into a folder, whole or not at all; returns it memory-mapped."""

    def build(writer: cache.Writer) -> dict[str, Any]:
      for name, array in self.arrays.items():
        writer.create(name, array.shape, array.dtype)
        writer.write(name, array)
      return {"digest": self.digest, "made_by": self.made_by, "error": self.error}

    stored = cache.write(folder, build)
    return Part(stored.arrays, **stored.fields)


class Rows:
  """The documents of all parts in one numbering; sliced, their vectors `[n, d]` (`Searcher`)."""

  def __init__(self, parts: Sequence[Part]):
    self.parts = tuple(parts)
    self.starts = np.cumsum([0, *map(len, parts)])

  def __len__(self) -> int:
    return int(self.starts[-1])

  @property
  def shape(self) -> tuple[int, int]:
    """`[rows, d]`."""
    return len(self), self.parts[0].arrays["vectors"].shape[1]

  def __getitem__(self, rows: slice) -> np.ndarray:
    first, last, _ = rows.indices(len(self))
    pieces = []
    for start, part in zip(self.starts, self.parts):
      if start < last and start + len(part) > first:
        pieces.append(part.arrays["vectors"][max(first - start, 0) : last - start])
    if len(pieces) == 1:  # not copied
      return pieces[0]
    return np.concatenate(pieces)

  def strings(self, name: str) -> list[str]:
    """Returns the `text` or the `id` of every document."""
    return [part.string(name, i) for part in self.parts for i in range(len(part))]

  def find(self, entry: int) -> tuple[Part, int]:
    """Returns the part that holds a document, and its position there."""
    number = int(np.searchsorted(self.starts, entry, "right")) - 1
    return self.parts[number], int(entry - self.starts[number])

  def take(self, entries: np.ndarray) -> np.ndarray:
    """Returns the vectors of some documents."""
    rows = []
    for entry in entries:
      part, at = self.find(entry)
      rows.append(part.arrays["vectors"][at])
    return np.stack(rows)

  def best(self, scores_of: Callable[[np.ndarray], np.ndarray], k: int) -> np.ndarray:
    """Returns the positions of the k greatest float64 scores of vectors, equal ones ascending."""
    entries, scores = np.zeros(0, np.int64), np.zeros(0)
    for start in range(0, len(self), exact_search.ROWS):
      block = scores_of(self[start : start + exact_search.ROWS])
      entries = np.concatenate([entries, start + np.arange(len(block))])
      scores = np.concatenate([scores, block])
      first = np.lexsort((entries, -scores))[:k]
      entries, scores = entries[first], scores[first]
    return entries


class Index(Shown):
  """Documents, searched by `search`; made by `Ranker.index`, opened again by `Index.open`."""

  def __init__(self, ranker: Ranker, path: str | os.PathLike | None = None):
    """Makes an index without documents, in a folder that holds no other files."""
    self.ranker = ranker
    self.path: Any = None if path is None else _local(path)  # a pathlib.Path
    if self.path is not None and self.path.is_dir() and not (self.path / CONTENT).exists():
      if list(self.path.glob("[!.]*")):  # hidden files are of a write that was stopped
        raise InputError(f"{path} is not empty and holds no index: give a new folder")
    self._rows = Rows(())
    self._words: tuple[Rows | None, Any] = None, None  # documents, and what scores them by words
    self._adding = threading.Lock()
    if not ranker.has_vectors and not hasattr(ranker, "over_pool"):
      raise TypeError(f"{ranker.name} has no vectors of texts; a bi-encoder has")
    if ranker.has_vectors and ranker.similarity not in exact_search.SIMILARITIES:
      raise InputError(
        f"model.score = {ranker.similarity!r}: documents can be searched by "
        f"{', '.join(exact_search.SIMILARITIES)}; set model.score to one in training"
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
  def open(
    cls,
    path: str | os.PathLike,
    *,
    ranker: Ranker | None = None,
    allow_code: bool = False,
    beside: Ranker | None = None,
  ) -> "Index":
    """Opens an index by its folder; without the `ranker` that made it, loads that from where it was.

    `allow_code` is that of `as2jax.load`; `beside`, a ranker that is open, saves it where it made the index.
    """
    folder = _local(path)
    if not (folder / CONTENT).exists():
      raise InputError(f"{path} is no index (no {CONTENT}): as2jax index or Ranker.index makes one")
    content = _read_content(folder)
    if beside is not None and beside.fingerprint == content["ranker"]:
      ranker = beside
    if ranker is None:
      if not content["source"]:
        raise InputError(f"{path}: the model was not opened by as2jax.load: give it as `ranker`")
      load = registry.resolve("as2jax.inference.open:load")
      how = {"dtype": content["dtype"], "allow_code": allow_code}
      if content["dtype"] == "int8":
        how |= {"dtype": "float32", "backend": "openvino-int8"}
      try:
        ranker = load(content["source"], seed=content["seed"], **how)
      except InputError as error:
        raise InputError(
          f"{folder / CONTENT} names a model that cannot be opened: {error}; if {CONTENT} was "
          f"changed, {ADVICE}"
        ) from error
    if ranker.fingerprint != content["ranker"]:
      raise InputError(
        f"{path} was made with other parameters, tokeniser or settings than those of "
        f"{ranker.source or ranker.name}, whose vectors are others: make the index anew"
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

  def about(self) -> dict[str, Any]:
    """Return how many documents are searched, where they lie and by what."""
    by = f"{self.ranker.similarity} of vectors" if self.ranker.has_vectors else "words"
    return {
      "Index": f"{len(self):,} documents in {self.path or 'memory'}",
      "ranker": f"{self.ranker.name} of {self.ranker.source or 'no folder'}",
      "searched by": by,
    }

  @property
  def texts(self) -> list[str]:
    """Of all documents."""
    return self._rows.strings("text")

  @property
  def ids(self) -> list[str]:
    """Of all documents."""
    return self._rows.strings("id")

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
      progress: called with the numbers of documents done and to do, at first and after each part; None:
        shown as that of training is.

    """
    if progress is None:
      from as2jax.training.progress import Progress as Display

      with Display(0.0) as display:
        self.add(texts, ids=ids, progress=functools.partial(display.count, "encoded"))
      return
    with self._adding, self._alone():
      added = parts_of(texts, ids, len(self))
      parts = list(self._rows.parts)
      names = Rows([*parts, *added]).strings("id")
      if len(set(names)) < len(names):
        (name, _), *_ = collections.Counter(names).most_common(1)
        raise InputError(f"the id {name!r} occurs twice: give each document its own")
      count, done = sum(map(len, added)), 0
      try:
        self._write_content(parts)
        progress(0, count)
        for part in added:
          parts.append(self._encoded(part, len(parts)))
          done += len(part)
          progress(done, count)
        self._write_content(parts)
      except OSError as error:
        raise InputError(
          f"{self.path}: the index cannot be written ({error}); free or allow space there, or give "
          "another folder for the index"
        ) from error
      self._rows = Rows(parts)

  def search(
    self,
    query: str,
    top_k: int = 10,
    *,
    k: int | None = None,
    rerank: Ranker | None = None,
    depth: int = DEPTH,
  ) -> list[Hit]:
    """Finds the `top_k` documents of greatest score, best first; equal scores in the documents' order.

    Args:
      query: its text.
      top_k, k: how many documents are returned, by either name.
      rerank, depth: another ranker (a cross-encoder), which ranks the best `depth` documents (at least
        `top_k`) again; hits then have its scores.

    """
    return self.search_many([query], top_k, k=k, rerank=rerank, depth=depth)[0]

  def search_many(
    self,
    queries: Sequence[str],
    top_k: int = 10,
    *,
    k: int | None = None,
    rerank: Ranker | None = None,
    depth: int = DEPTH,
  ) -> list[list[Hit]]:
    """Finds for each query what `search` finds."""
    k = top_k if k is None else k
    check_count("top_k", k)
    check_count("depth", depth)
    check_list(queries)
    k, depth = int(k), int(depth)
    if not len(queries):
      return []
    rows = self._rows  # another thread may add documents meanwhile
    if not rows.parts:
      raise InputError("the index holds no documents yet: add some")
    search = self._by_vectors if self.ranker.has_vectors else self._by_words
    results, questions = [], []
    for query, (entries, scores) in zip(
      queries, search(queries, min(max(k, depth) if rerank else k, len(rows)), rows), strict=True
    ):
      hits = []
      for entry, score in zip(entries.tolist(), scores.tolist(), strict=True):
        part, at = rows.find(entry)
        hits.append(Hit(entry, score, part.string("text", at), part.string("id", at)))
      results.append(hits)
      candidates = tuple(Candidate(str(at), hit.text) for at, hit in enumerate(hits))
      questions.append(Question(str(len(questions)), query, candidates))
    if rerank is None:
      return results
    for i, ranked in enumerate(rerank.rank_each(questions)):
      found = results[i]
      results[i] = [dataclasses.replace(found[hit.index], score=hit.score) for hit in ranked[:k]]
    return results

  def _by_vectors(self, queries: Sequence[str], k: int, rows: Rows) -> Found:
    similarity = self.ranker.similarity
    vectors = self.ranker.encode_query(queries)
    prepared = exact_search.prepared(vectors, similarity, side="query")
    # One program for every k up to 16, 32, …, and for one query or a block of them. Twice as many are
    # found as wanted: float32 orders near-equal distances by rounding, float64 then as they are.
    count = max(32, 1 << (2 * k - 1).bit_length())
    if count <= DEEPEST:
      block = 1 if len(vectors) == 1 else exact_search.QUERIES
      found = exact_search.Searcher(self.ranker.mesh, k=count, queries=block)(prepared, rows)
    error = max(part.error for part in rows.parts)
    results = []
    for i, vector in enumerate(vectors):
      sure = False
      if count <= DEEPEST:
        entries = found.entries[i][found.entries[i] != exact_search.NONE]
        query = prepared[i].astype(np.float64)
        kth = np.partition(rows.take(entries).astype(np.float64) @ query, -k)[-k]
        # The last score found is -inf where these are all documents.
        sure = kth > found.scores[i, -1] + np.linalg.norm(query) * error
      if not sure:
        entries = rows.best(functools.partial(_scores, vector, similarity=similarity), k)
      scores = _scores(vector, rows.take(entries), similarity)
      order = np.lexsort((entries, -scores))[:k]
      results.append((entries[order], scores[order]))
    return results

  def _by_words(self, queries: Sequence[str], k: int, rows: Rows) -> Found:
    known, scores_of = self._words
    if known is not rows:
      scores_of = self.ranker.over_pool(rows.strings("text"))
      self._words = rows, scores_of
    results = []
    for query in queries:
      scores = scores_of(query)
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
    part = dataclasses.replace(part, made_by=ranker.fingerprint)
    if self.path is not None:
      folder = self._part_folder(number)
      stored = Part.read(folder)
      if stored and (stored.digest, stored.made_by) == (part.digest, part.made_by):
        return stored
      shutil.rmtree(folder, ignore_errors=True)  # of other documents
    if ranker.has_vectors:
      texts = [part.string("text", i) for i in range(len(part))]
      vectors = ranker.encode_document(texts)
      vectors = exact_search.prepared(vectors, ranker.similarity, side="pool")
      arrays = {**part.arrays, "vectors": vectors}
      part = dataclasses.replace(part, arrays=arrays, error=exact_search.rounding(vectors))
    if self.path is None:
      return part
    return part.write(folder)

  def _part_folder(self, number: int) -> pathlib.Path:
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
    write_whole(self.path / CONTENT, json.dumps(content, indent=2) + "\n")


def check_count(name: str, count: Any) -> None:
  """Raises InputError where an argument is no whole number from 1 on, of Python's or numpy's."""
  if not isinstance(count, numbers.Integral) or count < 1:
    raise InputError(f"{name} = {count!r}: give a whole number, 1 or more")


def check_list(texts: object) -> None:
  """Raises InputError for what would be read letter by letter, by its keys, or in no order."""
  if isinstance(texts, (str, Mapping, Set)):
    raise InputError(f"{texts!r:.100} is no list of texts: give one")


def parts_of(texts: Sequence[str], ids: Sequence[str] | None, start: int) -> list[Part]:
  """Splits texts and ids into parts, without vectors."""
  check_list(texts)
  texts = list(texts)
  ids = list(map(str, range(start, start + len(texts)) if ids is None else ids))
  if not texts or len(texts) != len(ids):
    raise InputError(
      f"{len(texts)} texts and {len(ids)} ids: give one text or more, and an id of each"
    )
  for name, text in zip(ids, texts):
    if not isinstance(text, str) or not text.strip():
      raise InputError(f"document {name!r} is {text!r}: give a text")
  starts = range(0, len(texts), DOCUMENTS)
  return [Part.of(texts[at : at + DOCUMENTS], ids[at : at + DOCUMENTS]) for at in starts]


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
  content = read_object(folder / CONTENT, ADVICE)
  for key, types in FIELDS.items():
    if not isinstance(content.get(key, ...), types) or content.get("format") != FORMAT:
      raise InputError(f"{folder / CONTENT}: damaged, or not of format {FORMAT}: {ADVICE}")
  return content


def _local(path: Any) -> pathlib.Path:
  if "://" in str(path):
    raise InputError(f"{path}: an index lies on a local disk")
  return pathlib.Path(path).expanduser().absolute()
