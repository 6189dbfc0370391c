"""One row of a text file of word vectors: where its word ends, and its numbers."""

import array
import dataclasses
import io
import itertools
import math
from collections.abc import Iterable

from as2jax.data.lines import BYTE_ORDER_MARK
from as2jax.runtime.errors import InputError

_LONGEST = 1 << 20  # bytes of a first line; a binary file may have no second one


class BadRow(Exception):
  """A row that is left out; `kind` is what such rows are counted under."""

  def __init__(self, kind: str, detail: str = ""):
    super().__init__(kind + detail)
    self.kind = kind


@dataclasses.dataclass(frozen=True)
class Layout:
  """How the rows of a file are built.

  Attributes:
    dimension: numbers of a row.
    declared: rows by the header; None without one.
    first_line: number of the line with the first row.

  """

  dimension: int
  declared: int | None
  first_line: int

  def word(self, line: bytes) -> bytes:
    """The word of a row: all before its last `dimension` fields, so that it may have spaces.

    Raises:
      BadRow: too few or too many fields, no word, or one that is not UTF-8.

    """
    fields = line.count(b" ")
    if fields == self.dimension:
      word = line[: line.index(b" ")]
    elif fields < self.dimension:
      raise BadRow("too few numbers", f" ({fields} of {self.dimension})")
    else:
      word = line.rsplit(b" ", self.dimension)[0]
      # GloVe has the words ". . ." and "at x@y"; a number there, or a whole row, is no word.
      if _is_fraction(word.rsplit(b" ", 1)[-1]) or fields >= 2 * self.dimension:
        raise BadRow("too many numbers", f" ({fields} fields for {self.dimension})")
    if not word:
      raise BadRow("no word")
    if not word.isascii():
      try:
        word.decode("utf-8")
      except UnicodeDecodeError:
        raise BadRow("a word that is not UTF-8", f" ({word[:40]!r})") from None
    return word

  def numbers(self, line: bytes) -> array.array:
    """The numbers of a row, float32.

    Raises:
      BadRow: a field that is no number, or not finite in float32.

    """
    fields = line.rsplit(b" ", self.dimension)[1:]
    try:
      values = array.array("f", map(float, fields))
    except ValueError as error:
      raise BadRow("not a number", f" ({error})") from None
    if not math.isfinite(sum(values)):
      raise BadRow("not a finite number")
    if any(b"_" in field for field in fields):  # Python reads 1_0 as 10
      raise BadRow("not a number")
    return values


def first_row(path: str, stream: io.BufferedIOBase) -> tuple[Layout, Iterable[bytes]]:
  """The layout of a file, from its first two lines, and its rows as lines.

  Raises:
    InputError: an empty file, or one whose beginning is no row of vectors.

  """
  line = stream.readline(_LONGEST)
  if not line:
    raise InputError(f"{path} is empty; get the file again")
  line = line.removeprefix(BYTE_ORDER_MARK)
  fields = line.split()
  dimension = line.rstrip(b" \r\n").count(b" ")
  if len(line) == _LONGEST or b"\0" in line or len(fields) < 2 or not dimension:
    raise InputError(
      f"{path}:1: {line[:40]!r} is no row of word vectors (a word, then its "
      "numbers, with spaces between); a .bin must be saved as text first"
    )
  if len(fields) == 2 and all(field.isdigit() for field in fields):
    declared, dimension = map(int, fields)
    if not declared or not dimension:
      raise InputError(f"{path}:1: the header says {declared} rows of {dimension} numbers")
    return Layout(dimension, declared, 2), stream
  return Layout(dimension, None, 1), itertools.chain([line], stream)


def _is_fraction(field: bytes) -> bool:
  try:
    return not field.isdigit() and math.isfinite(float(field))
  except ValueError:
    return False
