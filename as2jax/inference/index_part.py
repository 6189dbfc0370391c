"""The documents of an index: parts in memory or memory-mapped, and the rows of all parts."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from as2jax.evaluation import exact_search
from as2jax.runtime import cache
from as2jax.runtime.errors import InputError

DOCUMENTS = 4096  # in a part: the most that an interruption loses


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
class Strings:
  """Texts as one array of UTF-8 bytes and the offset at which each begins, `[n + 1]`."""

  data: np.ndarray
  offsets: np.ndarray

  @classmethod
  def of(cls, texts: Sequence[str]) -> "Strings":
    """Packs texts; lone surrogates survive."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

  def __getitem__(self, i: int) -> str:
    piece = self.data[self.offsets[i] : self.offsets[i + 1]]
    return piece.tobytes().decode("utf-8", "surrogatepass")


@dataclasses.dataclass(frozen=True)
class Part:
  """Some documents of an index, in memory or memory-mapped.

  Attributes:
    texts, ids: of the documents.
    digest: SHA-256 of both.
    vectors: `[n, d]` float32, prepared for the search; None where documents are ranked by words.
    made_by: the fingerprint of the model that encoded them.
    error: bound on the rounding of a float32 score, for a query of length 1.

  """

  texts: Strings
  ids: Strings
  digest: str
  vectors: np.ndarray | None = None
  made_by: str = ""
  error: float = 0.0

  @classmethod
  def of(cls, texts: Sequence[str], ids: Sequence[str]) -> "Part":
    """Makes a part without vectors."""
    packed = Strings.of(texts), Strings.of(ids)
    digest = hashlib.sha256()
    for strings in packed:
      digest.update(strings.offsets.tobytes() + strings.data.tobytes())
    return cls(*packed, digest.hexdigest())

  @classmethod
  def read(cls, folder: pathlib.Path) -> "Part | None":
    """Memory-maps what `write` wrote; None where not all of it is there."""
    stored = cache.read(folder, "part of an index")
    if stored is None:
      return None
    arrays, fields = stored.arrays, stored.fields
    texts = Strings(arrays["text_bytes"], arrays["text_offsets"])
    ids = Strings(arrays["id_bytes"], arrays["id_offsets"])
    vectors = arrays.get("vectors")
    return cls(texts, ids, fields["digest"], vectors, fields["made_by"], fields["error"])

  def write(self, folder: pathlib.Path) -> "Part":
    """Writes the part into a new folder, whole or not at all; returns it memory-mapped."""
    arrays = {
      "text_bytes": self.texts.data,
      "text_offsets": self.texts.offsets,
      "id_bytes": self.ids.data,
      "id_offsets": self.ids.offsets,
    }
    if self.vectors is not None:
      arrays["vectors"] = self.vectors

    def build(writer: cache.Writer) -> dict[str, Any]:
      for name, array in arrays.items():
        writer.create(name, array.shape, array.dtype)
        writer.write(name, array)
      return {"digest": self.digest, "made_by": self.made_by, "error": self.error}

    try:
      cache.write(folder, build)
    except OSError as error:
      raise InputError(
        f"{folder}: the index cannot be written ({error}); free or allow space there, or give "
        "another folder for the index"
      ) from error
    part = Part.read(folder)
    assert part is not None  # `write` has read it
    return part

  def __len__(self) -> int:
    return len(self.texts.offsets) - 1


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
    return len(self), self.parts[0].vectors.shape[1]

  def __getitem__(self, rows: slice) -> np.ndarray:
    first, last, _ = rows.indices(len(self))
    pieces = []
    for start, part in zip(self.starts, self.parts):
      if start < last and start + len(part) > first:
        pieces.append(part.vectors[max(first - start, 0) : last - start])
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

  def find(self, entry: int) -> tuple[Part, int]:
    """Returns the part that holds a document, and its position there."""
    number = int(np.searchsorted(self.starts, entry, "right")) - 1
    return self.parts[number], int(entry - self.starts[number])

  def hit(self, entry: int, score: float) -> Hit:
    """Returns a document as a hit."""
    part, at = self.find(entry)
    return Hit(int(entry), float(score), part.texts[at], part.ids[at])

  def take(self, entries: np.ndarray) -> np.ndarray:
    """Returns the vectors of some documents."""
    rows = []
    for entry in entries:
      part, at = self.find(entry)
      rows.append(part.vectors[at])
    return np.stack(rows)

  def hold_the_best(self, query: np.ndarray, entries: np.ndarray, k: int, lowest: float) -> bool:
    """Checks that the best k of all documents are among `entries`, whatever float32 has rounded.

    Args:
      query: prepared.
      entries: what the device has found.
      lowest: the score of the last of them, −∞ where all documents were found.

    """
    exact = self.take(entries).astype(np.float64) @ query.astype(np.float64)
    length = float(np.linalg.norm(query.astype(np.float64)))
    error = length * max(part.error for part in self.parts)
    return bool(np.partition(exact, -k)[-k] > lowest + error)

  def best(self, scores_of: Callable[[np.ndarray], np.ndarray], k: int) -> np.ndarray:
    """Returns the positions of the k greatest scores, equal ones in ascending order.

    Args:
      scores_of: from vectors `[n, d]`, block by block, to their scores `[n]`, float64.

    """
    entries, scores = np.zeros(0, np.int64), np.zeros(0)
    for start in range(0, len(self), exact_search.ROWS):
      block = scores_of(self[start : start + exact_search.ROWS])
      entries = np.concatenate([entries, start + np.arange(len(block))])
      scores = np.concatenate([scores, block])
      first = np.lexsort((entries, -scores))[:k]
      entries, scores = entries[first], scores[first]
    return entries


def parts_of(texts: Sequence[str], ids: Sequence[str] | None, start: int) -> list[Part]:
  """Splits texts and ids into parts, without vectors."""
  if isinstance(texts, str):
    raise InputError(f"{texts!r:.100} is one text: give a list of texts")
  texts = list(texts)
  ids = list(map(str, range(start, start + len(texts)) if ids is None else ids))
  if not texts or len(texts) != len(ids):
    raise InputError(
      f"{len(texts)} texts and {len(ids)} ids: give one text or more, and an id of each"
    )
  for name, text in zip(ids, texts):
    if not isinstance(text, str) or not text.strip():
      raise InputError(f"document {name!r} is {text!r}: give a text")
  places = range(0, len(texts), DOCUMENTS)
  return [Part.of(texts[at : at + DOCUMENTS], ids[at : at + DOCUMENTS]) for at in places]
