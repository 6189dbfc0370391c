"""Text files read line by line, and the fields of their records; errors name the file and the line."""

import contextlib
import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from etils import epath

from as2jax.runtime.errors import InputError
from as2jax.runtime.files import refuse_others

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"
# How files begin that are packed otherwise.
PACKED = {
  b"\x28\xb5\x2f\xfd": "Zstandard",
  b"BZh": "bzip2",
  b"\xfd7zXZ": "xz",
  b"PK": "zip, as .xlsx is",
}
UNPACKING = (EOFError, gzip.BadGzipFile, zlib.error)  # what a damaged gzip file raises
# What would break a line of a run file, or has no UTF-8.
_UNWRITABLE = re.compile(r"[\s\x00\ufeff\ud800-\udfff]")
ID = "an id is not empty and has no white space, NUL or byte-order mark"
IDS = ("question_id", "candidate_id")
NAMES = (*IDS, "group")  # texts that name something, and so may be numbers


@contextlib.contextmanager
def opened(path: epath.PathLike, *, packed: bool = True) -> Iterator[BinaryIO]:
  """Open `path` for reading bytes, unpacked from gzip whatever the file is called if `packed`.

  Raises InputError: the path is absent, no file (a directory, a pipe, a device), or cannot be
  read, or a gzip file is damaged (in the block, too).
  """
  path = epath.Path(path)
  refuse_others(path)
  try:
    with path.open("rb") as file:
      stream: BinaryIO = file
      if packed and file.read(len(GZIP)) == GZIP:
        stream = gzip.GzipFile(fileobj=file)
      file.seek(0)
      yield stream
  except FileNotFoundError as error:
    raise InputError(f"{path} does not exist; check the path") from error
  except UNPACKING as error:
    problem = f"the gzip file is cut off or damaged ({error}); get it again"
    raise InputError(f"{path}:1: {problem}") from error
  except OSError as error:
    raise InputError(f"{path} cannot be read: {error.strerror or error}; check the file") from error


class Lines:
  """The decoded lines of a text file: iterating gives (number from 1, text without its end).

  The text is UTF-8. Lines end in LF or CR LF; a byte order mark is dropped; a gzip file is unpacked.
  One line is held at a time, so a file may be larger than memory.

  Args:
    path: of the file.
    ends: whether a line is given with its end, as `csv.reader` wants it.

  Raises InputError (while iterating): the file is empty, unreadable or an archive, or no UTF-8.

  """

  def __init__(self, path: epath.PathLike, *, ends: bool = False):
    self.path = epath.Path(path)
    self.ends = ends
    self.number = 0
    self.unterminated = False

  def __iter__(self) -> Iterator[tuple[int, str]]:
    with opened(self.path) as file:
      for line in file:
        self.number += 1
        self.unterminated = not line.endswith(b"\n")
        if not self.ends:
          line = line.removesuffix(b"\n").removesuffix(b"\r")
        yield self.number, decoded(line, self.path, self.number)
    if not self.number:
      raise InputError(f"{self.path} is empty; get the file again")

  def filled(self) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty."""
    for number, line in self:
      if line.strip():
        yield number, line

  def objects(self) -> Iterator[dict]:
    """Yield the JSON object of each line that is not empty; InputError for anything else."""
    for _, line in self.filled():
      record, problem = json_object(line)
      if problem:
        raise self.error(problem)
      yield record

  def error(self, problem: str, number: int | None = None) -> InputError:
    """Make the error for `problem` on line `number` (default: the line given last)."""
    number = number or self.number
    hint = ""
    if self.unterminated and number == self.number:
      hint = " (the file ends on this line without a line break: it may be cut off; get it again)"
    return InputError(f"{self.path}:{number}: {problem}{hint}")


def decoded(data: bytes, path: epath.PathLike, number: int = 1) -> str:
  """Decode UTF-8 that begins on line `number` of a file; drop the file's byte order mark.

  Raises InputError: another encoding; names file, line and place.
  """
  if number == 1:
    data = data.removeprefix(BYTE_ORDER_MARK)
  try:
    return data.decode("utf-8")
  except UnicodeDecodeError as error:
    before = data[: error.start]
    for start, packer in PACKED.items():
      if number == 1 and data.startswith(start):
        how = "unpack it, or pack it by gzip; of a spreadsheet save CSV UTF-8"
        raise InputError(f"{path} is packed by {packer}, which is not read: {how}") from error
    line, place = number + before.count(b"\n"), error.start - before.rfind(b"\n")
    raise InputError(
      f"{path}:{line}: byte 0x{data[error.start]:02x} at position {place} of the line is not UTF-8; "
      "convert the file to UTF-8 (in Excel: save as CSV UTF-8)"
    ) from error


def csv_records(
  lines: Iterable[str], delimiter: str, error: Callable[[str, int], InputError]
) -> Iterator[tuple[int, list[str]]]:
  """Yield the cells of each record of CSV (lines with their ends) with the number of its first line."""
  csv.field_size_limit(1 << 30)
  reader, first = csv.reader(lines, delimiter=delimiter, strict=True), 1
  try:
    for cells in reader:
      yield first, cells
      first = reader.line_num + 1
  except csv.Error as problem:
    how = "close each quotation mark, and double it inside a cell; quote cells that hold"
    told = f"not a line of CSV ({problem}): {how} {delimiter!r}; the file may be cut off"
    raise error(told, first) from problem


def quoted(text: str, limit: int = 60) -> str:
  """Quote `text` for a message, shortened to `limit` characters."""
  return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def is_id(value: str) -> bool:
  """Tell whether a run file, with columns separated by white space, can hold an id."""
  return bool(value) and not _UNWRITABLE.search(value)


def json_object(line: str) -> tuple[dict, str]:
  """Return the JSON object of a line and "", or {} and what is wrong."""
  problem = ""
  try:
    record = parsed(line)
    if isinstance(record, dict):
      return record, ""
  except (ValueError, RecursionError) as error:
    problem = f"{error}; "
  return {}, f"{quoted(line)} is not a JSON object: {problem}write one object a line"


def parsed(text: str) -> Any:
  """Parse JSON; ValueError also where an object has a field twice, or a text half a surrogate pair."""
  value = json.loads(text, object_pairs_hook=_object)
  if "\\u" in text:
    json.dumps(value, ensure_ascii=False).encode()
  return value


def _object(pairs: Sequence[tuple[str, object]]) -> dict:
  record = dict(pairs)
  if len(record) != len(pairs):
    raise ValueError("a field occurs twice")
  return record


def text_problem(name: str, value: object) -> str:
  """Say what is wrong with the text of a field, "" where nothing is; an id or group may be a number."""
  if value is None or isinstance(value, str) or (name in NAMES and type(value) is int):
    return ""
  return f"the field {name} is {quoted(json.dumps(value, default=str))}; expected a text in quotes"
