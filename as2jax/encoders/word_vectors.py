"""Word vectors as text: GloVe, word2vec and fastText's `.vec`; plain, gzip or zip.

One row a word: the word, then its d numbers, with single spaces between; fastText and word2vec put
a header `rows d` before them. A file is read as a stream, and only what is asked for is kept.
"""

import array
import contextlib
import dataclasses
import gzip
import hashlib
import io
import itertools
import json
import math
import os
import sys
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float32

from as2jax.data.lines import BYTE_ORDER_MARK, opened
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

TOLERATED = 0.01  # the part of a file's rows that may be malformed: one has to stop somewhere
UNKNOWN_WORDS = ("zero", "mean", "uniform", "skip")
UNIFORM = 0.25  # half-width of the vectors drawn for unknown words (SPEC.md 6)
_LONGEST = 1 << 20  # bytes of a first line; a binary file may have no second one
_SHOWN = 5  # malformed rows named in messages and statistics
_AGAIN = "it is no text file of word vectors (of a .bin, save the text form first)"


@dataclasses.dataclass(frozen=True)
class Vectors:
  """Words, in the order of the file, their vectors, and what is to be said of them."""

  words: tuple[str, ...]
  table: Float32[np.ndarray, "n d"]
  statistics: dict[str, Any]


class _BadRow(Exception):
  """A row that is left out."""


def read(
  path: epath.PathLike, vocabulary: Collection[str] | None, *, lower: bool, progress: float
) -> Vectors:
  """Reads the vectors of the words in `vocabulary`; of the rows of one word the first counts.

  Memory is that of the kept rows and one line. Malformed rows (fewer or more than d numbers, no
  word, a word that is not UTF-8; among the rows kept also what is no finite number) are left out,
  counted, and the first of them named in the statistics.

  Args:
    path: of the file; in a zip with several members, `FILE.zip:MEMBER`.
    vocabulary: the words; None for every row.
    lower: whether to keep the row of the lower-cased form of each word too.
    progress: seconds between two lines about it on stderr; 0 for none.

  Raises:
    InputError: an absent, unreadable or cut-off file; one that is no text of vectors; more than
      `TOLERATED` of the rows malformed or missing (against the header), or the very first one; more
      of the words ending in a number; none of the words in it.

  """
  wanted = None
  if vocabulary is not None:
    wanted = {word.encode("utf-8", "replace") for word in vocabulary}
    if lower:
      wanted |= {word.lower().encode("utf-8", "replace") for word in vocabulary}
  words: dict[bytes, None] = {}
  values = array.array("f")
  seen: Counter[str] = Counter()
  bad: list[str] = []
  with _stream(path) as (stream, part):
    dimension, declared, lines = _layout(path, stream)
    first, told = 1 if declared is None else 2, time.monotonic()
    for number, line in enumerate(lines, first):
      if number % 4096 == 0 and progress and time.monotonic() - told > progress:
        told = time.monotonic()
        done = f"{seen['rows']:,} rows, {len(words):,} words found"
        print(f"{path}: {part():.0%}, {done}", file=sys.stderr, flush=True)
      line = line.rstrip(b" \r\n")
      if not line:
        seen["blank"] += 1  # nothing, at the end of a file
        continue
      for blank in range(number - seen["blank"], number):
        bad.append(f"line {blank}: the line is empty")
      seen["blank"] = 0
      seen["rows"] += 1
      try:
        word = _word(line, dimension)
        if number == first:
          _numbers(line, dimension)
        seen["numbered"] += b" " in word and word.rsplit(b" ", 1)[1].isdigit()
        if wanted is None or word in wanted:
          if word in words:
            seen["duplicates"] += 1
          else:
            values.frombytes(_numbers(line, dimension).tobytes())
            words[word] = None
      except _BadRow as problem:
        if number == first:
          raise InputError(f"{path}:{number}: {problem}; {_AGAIN}") from None
        bad.append(f"line {number}: {problem}")
        if len(bad) > 1000:
          _check_malformed(path, seen["rows"], bad, 0, declared)
  missing = 0 if declared is None else declared - seen["rows"]
  _check_malformed(path, seen["rows"], bad, missing, declared)
  if seen["numbered"] > TOLERATED * seen["rows"]:  # rare words: more of them are longer rows
    raise InputError(
      f"{path}: {seen['numbered']} of {seen['rows']} words would end in a number, if a row had "
      f"{dimension} numbers as the first line says; mend that line, or get the file again"
    )
  if wanted and not words:
    raise InputError(
      f"{path}: none of the {len(vocabulary):,} words asked for is among its "
      f"{seen['rows']:,} rows; is it of another language, or cased differently?"
    )
  statistics: dict[str, Any] = {
    "file": os.path.basename(str(path)),
    "dimension": dimension,
    "rows": seen["rows"],
    "kept": len(words),
    "duplicates": seen["duplicates"],
    "malformed": len(bad),
    "missing": missing,
    "first_malformed": bad[:_SHOWN],
  }
  if trained_on := _trained_on(path):
    statistics["trained_on"] = trained_on
  table = np.frombuffer(values, np.float32).reshape(-1, dimension)
  return Vectors(tuple(word.decode() for word in words), table, statistics)


def _layout(
  path: epath.PathLike, stream: io.BufferedIOBase
) -> tuple[int, int | None, Iterator[bytes]]:
  """The numbers of a row, the rows by the header (None without one), and the lines with rows."""
  line = stream.readline(_LONGEST)
  if not line:
    raise InputError(f"{path} is empty; get the file again")
  line = line.removeprefix(BYTE_ORDER_MARK)
  fields, dimension = line.split(), line.rstrip(b" \r\n").count(b" ")
  if len(line) == _LONGEST or b"\0" in line or len(fields) < 2 or not dimension:
    raise InputError(
      f"{path}:1: {line[:40]!r} is no row of word vectors (a word, then its "
      "numbers, with spaces between); a .bin must be saved as text first"
    )
  if len(fields) > 2 or not all(field.isdigit() for field in fields):
    return dimension, None, itertools.chain([line], stream)
  declared, dimension = map(int, fields)
  if not declared or not dimension:
    raise InputError(f"{path}:1: the header says {declared} rows of {dimension} numbers")
  return dimension, declared, iter(stream)


def _word(line: bytes, dimension: int) -> bytes:
  """The word of a row: all before its last `dimension` fields, so that it may have spaces."""
  fields = line.count(b" ")
  if fields < dimension:
    raise _BadRow(f"too few numbers ({fields} of {dimension})")
  word = line.rsplit(b" ", dimension)[0]
  # GloVe has the words ". . ." and "at x@y"; a number there, or a whole row, is no word.
  if fields > dimension and (_is_fraction(word.rsplit(b" ", 1)[-1]) or fields >= 2 * dimension):
    raise _BadRow(f"too many numbers ({fields} fields for {dimension})")
  if not word:
    raise _BadRow("no word")
  try:
    word.decode("utf-8")
  except UnicodeDecodeError:
    raise _BadRow(f"a word that is not UTF-8 ({word[:40]!r})") from None
  return word


def _is_fraction(field: bytes) -> bool:
  try:
    return not field.isdigit() and math.isfinite(float(field))
  except ValueError:
    return False


def _numbers(line: bytes, dimension: int) -> Float32[np.ndarray, "d"]:
  fields = line.rsplit(b" ", dimension)[1:]
  try:
    with np.errstate(over="ignore"):
      values = np.array(list(map(float, fields))).astype(np.float32)
  except ValueError as error:
    raise _BadRow(f"not a number ({error})") from None
  if any(b"_" in field for field in fields):  # Python reads 1_0 as 10
    raise _BadRow("not a number")
  if not np.isfinite(values).all():
    raise _BadRow("not a finite number")
  return values


def _check_malformed(
  path: epath.PathLike, rows: int, bad: Sequence[str], missing: int, declared: int | None
) -> None:
  """Raises InputError where too many rows are malformed, or missing by the header."""
  if len(bad) + abs(missing) > TOLERATED * rows:
    header = f", and its header says {declared}" if missing else ""
    raise InputError(
      f"{path}: {len(bad)} of {rows} rows are malformed{header}, which is more than "
      f"{TOLERATED:.0%} off; is it cut off, or no file of word vectors? Get it again; "
      + "; ".join(bad[:_SHOWN])
    )


@contextlib.contextmanager
def _stream(path: epath.PathLike) -> Iterator[tuple[io.BufferedIOBase, Callable[[], float]]]:
  """The bytes of the text, unpacked, and a function that gives the part of the file read."""
  name, _, member = str(path).partition(".zip:")
  file = epath.Path(name + ".zip" if member else name)
  broken = (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, NotImplementedError)
  with contextlib.ExitStack() as stack:
    raw = stack.enter_context(opened(file))
    size = max(raw.seek(0, os.SEEK_END), 1)
    raw.seek(0)
    head = raw.read(4)
    raw.seek(0)
    try:
      stream: Any = raw
      if head.startswith(b"\x1f\x8b"):
        stream = stack.enter_context(gzip.GzipFile(fileobj=raw))
      elif head == b"PK\x03\x04":
        archive = stack.enter_context(zipfile.ZipFile(raw))
        stream = stack.enter_context(archive.open(_member(file, archive, member)))
      elif member:
        raise InputError(f"{path}: {file} is no zip file, so there is no member {member!r} in it")
      yield stream, lambda: raw.tell() / size
    except broken as error:
      raise InputError(f"{path}: cut off or damaged ({error}); get the file again") from error
    except OSError as error:
      raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def _member(file: epath.Path, archive: zipfile.ZipFile, member: str) -> str:
  files = [name for name in archive.namelist() if not name.endswith("/")]
  if member in files or (not member and len(files) == 1):
    return member or files[0]
  problem = f"has no member {member!r}" if member else "has several members"
  raise InputError(
    f"{file} {problem}; give one, as {file}:{files[0] if files else 'NAME'} "
    f"(members: {', '.join(files) or 'none'})"
  )


def lookup(
  vectors: Vectors, words: Sequence[str], *, unknown_words: str
) -> tuple[Float32[np.ndarray, "w d"], list[str]]:
  """Returns each word's vector (its own, else its lower-cased form's), and the words without one.

  Args:
    unknown_words: their vectors: `zero`; `mean` of the rows of `vectors`; `uniform` in ±0.25, drawn
      from a hash of the word, so that neither order nor vocabulary changes it; `skip`, where the
      tokeniser leaves them out (their row is zero, and only read in a text of no other words).

  Raises:
    InputError: another policy.

  """
  if unknown_words not in UNKNOWN_WORDS:
    raise InputError(
      f"encoder.unknown_words = {unknown_words!r}: use one of {', '.join(UNKNOWN_WORDS)}"
    )
  row = {word: i for i, word in enumerate(vectors.words)}
  table = np.zeros((len(words), vectors.table.shape[1]), np.float32)
  mean = vectors.table.mean(axis=0, dtype=np.float64) if unknown_words == "mean" else 0.0
  missing = []
  for i, word in enumerate(words):
    at = row.get(word, row.get(word.lower()))
    if at is not None:
      table[i] = vectors.table[at]
      continue
    missing.append(word)
    table[i] = _drawn(word, table.shape[1]) if unknown_words == "uniform" else mean
  return table, missing


def _drawn(word: str, dimension: int) -> np.ndarray:
  seed = int.from_bytes(hashlib.sha256(word.encode("utf-8", "replace")).digest()[:8], "little")
  return np.random.default_rng(seed).uniform(-UNIFORM, UNIFORM, dimension).astype(np.float32)


def write(path: epath.PathLike, words: Sequence[str], table: Float32[np.ndarray, "n d"]) -> None:
  """Writes word2vec's text format, with a header, whole or not at all; `read` gets the same numbers.

  Raises:
    InputError: a word that is empty or has white space, or a folder that cannot be written.

  """
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


def _trained_on(path: epath.PathLike) -> dict[str, Any] | None:
  beside = description(path)
  if not beside.exists():
    return None
  try:
    record = json.loads(beside.read_text(encoding="utf-8"))
    if record.pop("bytes") == epath.Path(path).stat().length:
      return record
  except (ValueError, KeyError, AttributeError, TypeError):
    pass
  raise InputError(
    f"{beside} does not describe {path} as it is; train the vectors again, or "
    "delete the description"
  )
