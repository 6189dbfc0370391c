"""Word vectors as text: GloVe, word2vec and fastText's `.vec`; plain, gzip or zip.

One row a word: the word, then its d numbers, with single spaces between; fastText and word2vec put
a header `rows d` before them. A file is read as a stream, and only what is asked for is kept.
"""

import array
import contextlib
import dataclasses
import hashlib
import io
import json
import os
import sys
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float32

from as2jax.data.lines import opened
from as2jax.encoders.vector_rows import BadRow, first_row
from as2jax.runtime.errors import InputError

TOLERATED = 0.01  # the part of a file's rows that may be malformed: one has to stop somewhere
UNKNOWN_WORDS = ("zero", "mean", "uniform", "skip")
UNIFORM = 0.25  # half-width of the vectors drawn for unknown words (SPEC.md 6)
_LOOK = 4096  # rows between two looks at the clock
_SHOWN = 5  # malformed rows named in messages and statistics


@dataclasses.dataclass(frozen=True)
class Vectors:
  """Words, in the order of the file, their vectors, and what is to be said of them."""

  words: tuple[str, ...]
  table: Float32[np.ndarray, "n d"]
  statistics: dict[str, Any]


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
    wanted |= {word.lower().encode("utf-8", "replace") for word in vocabulary if lower}
  with _stream(path) as (stream, position):
    reader = _Reader(str(path), stream, wanted)
    reader.run(progress, position)
  if wanted and not reader.words:
    raise InputError(
      f"{path}: none of the {len(vocabulary):,} words asked for is among its "
      f"{reader.rows:,} rows; is it of another language, or cased differently?"
    )
  table = np.frombuffer(reader.values, np.float32).reshape(-1, reader.layout.dimension)
  statistics = {"file": os.path.basename(str(path)), **reader.statistics()}
  if trained_on := _trained_on(path):
    statistics["trained_on"] = trained_on
  return Vectors(tuple(word.decode() for word in reader.words), table, statistics)


def lookup(
  vectors: Vectors, words: Sequence[str], *, unknown_words: str
) -> tuple[Float32[np.ndarray, "w d"], list[str]]:
  """The vector of each word: its own, else that of its lower-cased form, else by the policy `unknown_words`.

  Args:
    unknown_words: `zero`; `mean` of the rows of `vectors`; `uniform` in ±0.25, drawn from a hash of the
      word, so that neither order nor vocabulary changes it; `skip`, where the tokeniser leaves
      unknown words out (their row is zero, and only read in a text that has no other words).

  Returns:
    The table, and the words that have no vector.

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


def write(path: epath.PathLike, words: Sequence[str], table: Float32[np.ndarray, "n d"]) -> None:
  """Writes word2vec's text format, with a header, from which `read` gets the same float32 numbers.

  The file is there whole or not at all.

  Raises:
    InputError: a word that is empty or has white space, or a folder that cannot be written.

  """
  path = epath.Path(path)
  unfit = [word for word in words if not word or word.split() != [word]]
  if unfit:
    raise InputError(f"{path}: the word {unfit[0]!r} has white space, which ends a word there")
  scratch = path if "://" in str(path) else path.parent / f".{path.name}.{os.getpid()}"
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    with scratch.open("w", encoding="utf-8") as file:
      file.write(f"{table.shape[0]} {table.shape[1]}\n")
      for word, vector in zip(words, table, strict=True):
        file.write(f"{word} {' '.join(f'{x:.9g}' for x in vector.tolist())}\n")
    if scratch != path:
      os.replace(scratch, path)
  except OSError as error:
    raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
  finally:
    if scratch != path:
      with contextlib.suppress(OSError):  # there is nothing to remove, or the error is on its way
        scratch.unlink()


class _Reader:
  """Goes through the rows once; keeps those that are wanted."""

  def __init__(self, path: str, stream: io.BufferedIOBase, wanted: set[bytes] | None):
    self.path, self.wanted = path, wanted
    self.layout, self.lines = first_row(path, stream)
    self.rows = self.duplicates = self.numbered = 0
    self.words: dict[bytes, None] = {}
    self.values = array.array("f")
    self.bad: Counter[str] = Counter()
    self.first_bad: list[str] = []

  def run(self, progress: float, position: Any) -> None:
    """Reads to the end, and refuses a file with too many malformed rows."""
    layout, wanted, words = self.layout, self.wanted, self.words
    last, number, blank = time.monotonic(), layout.first_line - 1, []
    for line in self.lines:
      number += 1
      if number % _LOOK == 0 and progress and time.monotonic() - last > progress:
        last = time.monotonic()
        self._report(position)
      line = line.rstrip(b" \r\n")
      if not line:
        blank.append(number)  # nothing, at the end of a file
        continue
      if blank:
        for empty in blank:
          self._refuse(empty, BadRow("the line is empty"))
        blank.clear()
      self.rows += 1
      try:
        word = layout.word(line)
        if number == layout.first_line:
          layout.numbers(line)
        if b" " in word and word.rsplit(b" ", 1)[1].isdigit():
          self.numbered += 1  # such words are rare: more of them are rows of more numbers
        if wanted is not None and word not in wanted:
          continue
        if word in words:
          self.duplicates += 1
          continue
        self.values.extend(layout.numbers(line))
        words[word] = None
      except BadRow as problem:
        self._refuse(number, problem)
    self._check_malformed(self._missing())
    if self.numbered > TOLERATED * self.rows:
      raise InputError(
        f"{self.path}: {self.numbered} of {self.rows} words would end in a number, if a row had "
        f"{layout.dimension} numbers as the first line says; mend that line, or get the file again"
      )

  def _refuse(self, number: int, problem: BadRow) -> None:
    self.bad[problem.kind] += 1
    if len(self.first_bad) < _SHOWN:
      self.first_bad.append(f"line {number}: {problem}")
    if number == self.layout.first_line:
      raise InputError(
        f"{self.path}:{number}: {problem}; it is no text file of word vectors "
        "(of a .bin, save the text form first)"
      )
    if self.bad.total() > 1000:
      self._check_malformed(missing=0)  # as yet

  def _check_malformed(self, missing: int) -> None:
    if self.bad.total() + abs(missing) > TOLERATED * self.rows:
      header = f", and its header says {self.layout.declared}" if missing else ""
      details = "".join(f"; {bad}" for bad in self.first_bad)
      raise InputError(
        f"{self.path}: {self.bad.total()} of {self.rows} rows are malformed{header}, which is "
        f"more than {TOLERATED:.0%} off; is it cut off, or no file of word vectors? Get it "
        f"again{details}"
      )

  def _missing(self) -> int:
    """Rows that the header promises and that are not there, once all is read; below 0: more are."""
    return 0 if self.layout.declared is None else self.layout.declared - self.rows

  def _report(self, position: Any) -> None:
    of = f" of {len(self.wanted):,}" if self.wanted is not None else ""
    print(
      f"{self.path}: {position():.0%}, {self.rows:,} rows, {len(self.words):,}{of} words found",
      file=sys.stderr,
      flush=True,
    )

  def statistics(self) -> dict[str, Any]:
    return {
      "dimension": self.layout.dimension,
      "rows": self.rows,
      "kept": len(self.words),
      "duplicates": self.duplicates,
      "malformed": self.bad.total(),
      "missing": self._missing(),
      "first_malformed": list(self.first_bad),
    }


@contextlib.contextmanager
def _stream(path: epath.PathLike) -> Iterator[tuple[io.BufferedIOBase, Any]]:
  """The bytes of the text, unpacked, and a function that gives the part of the file read."""
  import gzip
  import zipfile

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
      stream = raw
      if head.startswith(b"\x1f\x8b"):
        stream = stack.enter_context(gzip.GzipFile(fileobj=raw))
      elif head.startswith(b"PK\x03\x04"):
        archive = stack.enter_context(zipfile.ZipFile(raw))
        stream = stack.enter_context(archive.open(_member(file, archive.namelist(), member)))
      elif member:
        raise InputError(f"{path}: {file} is no zip file, so there is no member {member!r} in it")
      yield stream, lambda: raw.tell() / size
    except broken as error:
      raise InputError(f"{path}: cut off or damaged ({error}); get the file again") from error
    except OSError as error:
      raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def _member(file: epath.Path, names: Iterable[str], member: str) -> str:
  files = [name for name in names if not name.endswith("/")]
  if member in files or (not member and len(files) == 1):
    return member or files[0]
  problem = f"has no member {member!r}" if member else "has several members"
  raise InputError(
    f"{file} {problem}; give one, as {file}:{files[0] if files else 'NAME'} "
    f"(members: {', '.join(files) or 'none'})"
  )


def _drawn(word: str, dimension: int) -> Float32[np.ndarray, "d"]:
  seed = int.from_bytes(hashlib.sha256(word.encode("utf-8", "replace")).digest()[:8], "little")
  return np.random.default_rng(seed).uniform(-UNIFORM, UNIFORM, dimension).astype(np.float32)


def description(path: epath.PathLike) -> epath.Path:
  """Where `train_vectors` says what the vectors in `path` were trained on."""
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
