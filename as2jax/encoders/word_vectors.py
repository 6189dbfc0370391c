"""Word vectors as text: GloVe, word2vec and fastText's `.vec`; plain, gzip or zip.

One row a word: the word, then its d numbers, with single spaces between; fastText and word2vec put
a header `rows d` before them. A file is read as a stream, and only what is asked for is kept.
"""

import array
import contextlib
import dataclasses
import gzip
import hashlib
import itertools
import os
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from etils import epath
from jaxtyping import Float32

from as2jax.data.lines import BYTE_ORDER_MARK, GZIP, UNPACKING, opened
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object, write_whole

TOLERATED = 0.01  # the part of a file's rows that may be malformed: one has to stop somewhere
UNKNOWN_WORDS = ("zero", "mean", "uniform", "skip")
UNIFORM = 0.25  # half-width of the vectors drawn for unknown words (SPEC.md 6)
_LONGEST = 1 << 20  # bytes of a first line; a binary file may have no second one


@dataclasses.dataclass(frozen=True)
class Vectors:
  """Words, in the order of the file, their vectors, and what is to be said of them."""

  words: tuple[str, ...]
  table: Float32[np.ndarray, "n d"]
  statistics: dict[str, Any]


def read(path: epath.PathLike, vocabulary: Collection[str] | None) -> Vectors:
  """Reads the vectors of the words in `vocabulary` (None: of all) and of their lower-cased forms.

  Of the rows of one word the first counts. Malformed rows (fewer or more than d numbers, no word, a word
  that is not UTF-8; among the rows kept also what is no finite number) are left out and counted.
  InputError where more than `TOLERATED` are malformed or missing, or no word is there. A zip with
  several members is named as `FILE.zip:MEMBER`.
  """
  wanted = None
  if vocabulary is not None:
    forms = [*vocabulary, *(word.lower() for word in vocabulary)]
    wanted = {word.encode("utf-8", "replace") for word in forms}
  words: dict[bytes, None] = {}
  values = array.array("f")
  rows = duplicates = malformed = 0
  problems: list[str] = []
  with _stream(path) as stream:
    dimension, declared, lines = _layout(path, stream)
    for line in lines:
      line = line.rstrip(b" \r\n")
      if not line:
        continue
      rows += 1
      try:
        word, *numbers = _fields(line, dimension)
        duplicates += word in words
        if word not in words and (wanted is None or word in wanted):
          values.frombytes(_vector(numbers).tobytes())
          words[word] = None
      except ValueError as problem:
        malformed += 1
        if malformed <= 5:
          problems.append(f"row {rows}: {problem}")
  missing = 0 if declared is None else abs(declared - rows)
  if malformed + missing > TOLERATED * rows:
    header = f", and its header says {declared}" if missing else ""
    raise InputError(
      f"{path}: {malformed} of {rows} rows are malformed{header}; is it cut off, or no text of word "
      f"vectors? Get it again; {'; '.join(problems)}"
    )
  if wanted and not words:
    raise InputError(
      f"{path}: none of the {len(vocabulary):,} words asked for is among its {rows:,} rows; is it "
      "of another language, or cased differently?"
    )
  statistics = {
    "file": os.path.basename(str(path)),
    "dimension": dimension,
    "rows": rows,
    "kept": len(words),
    "duplicates": duplicates,
    "malformed": malformed,
    **_trained_on(path),
  }
  table = np.frombuffer(values, np.float32).reshape(-1, dimension)
  return Vectors(tuple(word.decode() for word in words), table, statistics)


def _layout(path: epath.PathLike, stream: BinaryIO) -> tuple[int, int | None, Iterable[bytes]]:
  """Returns the numbers of a row, the rows by the header (None without one), and the rows' lines."""
  line = stream.readline(_LONGEST).removeprefix(BYTE_ORDER_MARK)
  fields, dimension = line.split(), line.rstrip(b" \r\n").count(b" ")
  if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit():
    return int(fields[1]), int(fields[0]), stream
  if len(line) == _LONGEST or b"\0" in line or not dimension:
    raise InputError(
      f"{path}:1: {line[:40]!r} is no row of word vectors (a word, then its numbers, with spaces "
      "between); get the file again, or save a .bin as text first"
    )
  return dimension, None, itertools.chain([line], stream)


def _fields(line: bytes, dimension: int) -> list[bytes]:
  """Returns the word of a row, all before its last `dimension` fields, and these; else ValueError."""
  word, *numbers = line.rsplit(b" ", dimension)
  # GloVe has the words ". . ." and "at x@y"; one that ends in a number is part of a longer row.
  longer = re.search(rb" [-+]?\d*\.?\d+(e[-+]?\d+)?$", word) or word.count(b" ") >= dimension
  if not word or longer or len(numbers) < dimension:
    raise ValueError(f"not a word and {dimension} numbers")
  word.decode()
  return [word, *numbers]


def _vector(numbers: Sequence[bytes]) -> Float32[np.ndarray, "d"]:
  with np.errstate(over="ignore"):
    values = np.array(list(map(float, numbers))).astype(np.float32)
  if not np.isfinite(values).all():
    raise ValueError("not a finite number")
  return values


@contextlib.contextmanager
def _stream(path: epath.PathLike) -> Iterator[Any]:
  """Opens the file, or the member of a zip, and unpacks it."""
  name, zipped, member = str(path).partition(".zip:")
  file = epath.Path(name + zipped.removesuffix(":"))
  with opened(file, packed=False) as raw:
    head = raw.read(4)
    raw.seek(0)
    try:
      if head.startswith(GZIP):
        yield gzip.GzipFile(fileobj=raw)
      elif head == b"PK\x03\x04" or member:
        archive = zipfile.ZipFile(raw)
        files = [name for name in archive.namelist() if not name.endswith("/")]
        if not member and len(files) == 1:
          member = files[0]
        if member not in files:
          raise InputError(
            f"{file}: give one of its members, as {file}:NAME; there are {', '.join(files) or 'none'}"
          )
        yield archive.open(member)
      else:
        yield raw
    except (*UNPACKING, zipfile.BadZipFile, NotImplementedError) as error:
      raise InputError(f"{path}: cut off or damaged ({error}); get the file again") from error


def lookup(
  vectors: Vectors, words: Sequence[str], *, unknown_words: str
) -> Float32[np.ndarray, "w d"]:
  """Returns each word's vector: its own, else its lower-cased form's, else by `unknown_words`.

  That is `zero`; `mean` of the rows of `vectors`; `uniform` in ±0.25, drawn from a hash of the word, so
  that neither order nor vocabulary changes it; `skip`, where the tokeniser leaves such words out (their
  row is zero, and only read in a text of no other words).
  """
  row = {word: i for i, word in enumerate(vectors.words)}
  table = np.zeros((len(words), vectors.table.shape[1]), np.float32)
  mean = vectors.table.mean(axis=0, dtype=np.float64) if unknown_words == "mean" else 0.0
  for i, word in enumerate(words):
    at = row.get(word, row.get(word.lower()))
    if at is not None:
      table[i] = vectors.table[at]
    elif unknown_words == "uniform":
      seed = hashlib.sha256(word.encode("utf-8", "replace")).digest()[:8]
      random = np.random.default_rng(int.from_bytes(seed, "little"))
      table[i] = random.uniform(-UNIFORM, UNIFORM, table.shape[1])
    else:
      table[i] = mean
  return table


def write(path: epath.PathLike, words: Sequence[str], table: Float32[np.ndarray, "n d"]) -> None:
  """Writes word2vec's text format, with a header, whole or not at all; `read` gets the same numbers."""
  lines = [f"{table.shape[0]} {table.shape[1]}\n"]
  for word, vector in zip(words, table, strict=True):
    if word.split() != [word]:
      raise InputError(f"{path}: the word {word!r} has white space, which ends a word there")
    lines.append(f"{word} {' '.join(f'{x:.9g}' for x in vector.tolist())}\n")
  try:
    write_whole(epath.Path(path), "".join(lines))
  except OSError as error:
    raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def description(path: epath.PathLike) -> epath.Path:
  """Returns where `train_vectors` says what the vectors in `path` were trained on."""
  return epath.Path(f"{path}.json")


def _trained_on(path: epath.PathLike) -> dict[str, Any]:
  beside = description(path)
  if not beside.exists():
    return {}
  advice = "train the vectors again, or delete the description"
  record = read_object(beside, advice)
  if record.pop("bytes", None) != epath.Path(path).stat().length:
    raise InputError(f"{beside} does not describe {path} as it is; {advice}")
  return {"trained_on": record}
