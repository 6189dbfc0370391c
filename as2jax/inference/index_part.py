"""A part of an index: some documents with their vectors, in memory or memory-mapped."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Sequence

import numpy as np

from as2jax.evaluation.exact_search import Narrow
from as2jax.runtime import array_folder
from as2jax.runtime.errors import InputError

DOCUMENTS = 4096  # in a part: what is lost at most when indexing is interrupted


@dataclasses.dataclass(frozen=True)
class Strings:
  """Texts as one array of UTF-8 bytes and the place at which each begins, `[n + 1]`."""

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
  """Some documents of an index.

  Attributes:
    texts, ids: of the documents.
    digest: SHA-256 of both.
    vectors: `[n, d]` float32, prepared for the search; None where documents are ranked by words.
    made_by: the fingerprint of the model that encoded them.
    narrow: the vectors in fewer bits, None where float32 alone is kept.
    error: the most that narrowing and rounding can change a score, for a query of length 1.

  """

  texts: Strings
  ids: Strings
  digest: str
  vectors: np.ndarray | None = None
  made_by: str = ""
  narrow: Narrow | None = None
  error: float = 0.0

  @classmethod
  def of(cls, texts: Sequence[str], ids: Sequence[str]) -> "Part":
    """Documents without vectors."""
    packed = Strings.of(texts), Strings.of(ids)
    digest = hashlib.sha256()
    for strings in packed:
      digest.update(strings.offsets.tobytes() + strings.data.tobytes())
    return cls(*packed, digest.hexdigest())

  @classmethod
  def read(cls, folder: pathlib.Path) -> "Part | None":
    """What `write` wrote, memory-mapped; None where not all is there.

    Texts, ids and vectors are compared with their checksums as they are read.
    """
    later = ("text_bytes", "id_bytes", "vectors", "narrow_values")
    stored = array_folder.open_arrays(folder, "part of an index", later, large=0)
    if stored is None:
      return None
    arrays, fields = stored
    texts, ids = (Strings(arrays[f"{x}_bytes"], arrays[f"{x}_offsets"]) for x in ("text", "id"))
    narrow = None
    if "narrow_values" in arrays:
      narrow = Narrow(*(arrays[f"narrow_{name}"] for name in Narrow._fields))
    own = fields["digest"], arrays.get("vectors"), fields["made_by"]
    return cls(texts, ids, *own, narrow, fields["error"])

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
    if self.narrow is not None:
      arrays |= {f"narrow_{name}": array for name, array in self.narrow._asdict().items()}
    shapes = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    with (
      array_folder.new_folder(folder, what="index") as scratch,
      array_folder.Writer(scratch, shapes) as writer,
    ):
      for name, array in arrays.items():
        writer.write(name, array)
      writer.finish(digest=self.digest, made_by=self.made_by, error=self.error)
    part = Part.read(folder)
    if part is None:
      raise InputError(f"{folder} was written and cannot be read back: check the disk")
    return part

  def __len__(self) -> int:
    return len(self.texts.offsets) - 1

  def text(self, i: int) -> str:
    """The text of document i."""
    return self.texts[i]

  def id(self, i: int) -> str:
    """The id of document i."""
    return self.ids[i]


def parts_of(texts: Sequence[str], ids: Sequence[str] | None, start: int) -> list[Part]:
  """Texts and ids in parts, without vectors."""
  if isinstance(texts, str):
    raise InputError(f"{texts!r:.100} is one text: give a list of texts")
  texts = list(texts)
  ids = list(map(str, range(start, start + len(texts)))) if ids is None else list(map(str, ids))
  if not texts or len(texts) != len(ids):
    raise InputError(
      f"{len(texts)} texts and {len(ids)} ids: give one text or more, and an id of each"
    )
  for name, text in zip(ids, texts):
    if not isinstance(text, str) or not text.strip():
      raise InputError(f"document {name!r} is {text!r}: give a text")
  return [
    Part.of(texts[at : at + DOCUMENTS], ids[at : at + DOCUMENTS])
    for at in range(0, len(texts), DOCUMENTS)
  ]
