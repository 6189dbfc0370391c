"""The lines of a user's text file, and errors that name the file and the line."""

import contextlib
import functools
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from etils import epath

from as2jax.runtime import regular_files
from as2jax.runtime.errors import InputError

LONGEST = 64 << 20  # bytes of a line: a small packed file may hold one of many GiB
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # its byte order marks
GZIP = b"\x1f\x8b"
ARCHIVES = (  # place in the file, mark, name
  (0, b"PK\x03\x04", "zip"),
  (4, b"1AY&SY", "bzip2"),
  (0, b"\xfd7zXZ\x00", "xz"),
  (0, b"7z\xbc\xaf\x27\x1c", "7z"),
  (257, b"ustar", "tar"),
)
SPREADSHEETS = (".xlsx", ".xlsm", ".ods")  # zip archives
OLD_SPREADSHEET = b"\xd0\xcf\x11\xe0"  # how an .xls begins
# What would break a line of a run file, or has no UTF-8.
_UNWRITABLE = re.compile(r"[\s\x00\ufeff\ud800-\udfff]")
ID = "an id is not empty and has no white space, NUL or byte-order mark"
UNPACKING = (EOFError, gzip.BadGzipFile, zlib.error)  # what a damaged gzip file raises


@contextlib.contextmanager
def opened(path: epath.PathLike) -> Iterator[BinaryIO]:
  """Opens `path` for reading bytes.

  Raises:
    InputError: the path is absent, no file (a directory, a pipe, a device), or cannot be read.

  """
  path = epath.Path(path)
  regular_files.refuse_others(path)
  try:
    with path.open("rb") as file:
      yield file
  except FileNotFoundError as error:
    raise InputError(f"{path} does not exist; check the path") from error
  except OSError as error:
    raise InputError(f"{path} cannot be read: {error.strerror or error}; check the file") from error


@contextlib.contextmanager
def unpacked(path: epath.PathLike) -> Iterator[BinaryIO]:
  """As `opened`; what gzip compressed is unpacked on the way, whatever the file is called.

  Reading raises one of `UNPACKING` where the compressed file is cut off or damaged, which becomes an
  InputError where the block does not handle it.

  Raises:
    InputError: as `opened`, or the file is an archive of files, a spreadsheet, or damaged.

  """
  path = epath.Path(path)
  with opened(path) as file:
    packed = file.read(len(GZIP)) == GZIP
    file.seek(0)
    stream = gzip.GzipFile(fileobj=file) if packed else file
    try:
      start = stream.read(512)
    except UNPACKING as error:
      raise InputError(f"{path}:1: {_damaged(error)}") from error
    sheet = start.startswith(ARCHIVES[0][1]) and path.suffix.lower() in SPREADSHEETS
    if sheet or start.startswith(OLD_SPREADSHEET):
      raise InputError(f"{path}: this is a spreadsheet; save it as CSV (UTF-8) and give that file")
    for place, mark, name in ARCHIVES:
      if start[place:].startswith(mark):
        raise InputError(f"{path}:1: this is a {name} archive; unpack it and give a file of it")
    stream.seek(0)
    try:
      yield stream
    except UNPACKING as error:
      raise InputError(f"{path}: {_damaged(error)}") from error


def _damaged(error: Exception) -> str:
  return f"the gzip file is cut off or damaged ({error}); get it again"


class Lines:
  """The decoded lines of a text file: iterating gives (number from 1, text without its end).

  The text is UTF-8, or UTF-16 where the file begins with its byte order mark (Excel's "Unicode
  text"). Lines end in LF or CR LF; a byte order mark is dropped; a gzip file is unpacked.
  One line is held at a time, so a file may be larger than memory.

  Args:
    path: of the file.
    ends: whether a line is given with its end, as `csv.reader` wants it; a lone CR is allowed then.

  Raises (while iterating):
    InputError: the file is empty, unreadable or an archive, or a line is neither, holds NUL or
      a lone CR, or has `LONGEST` bytes.

  """

  def __init__(self, path: epath.PathLike, *, ends: bool = False):
    self.path = epath.Path(path)
    self.ends = ends
    self.number = 0
    self.unterminated = False

  def __iter__(self) -> Iterator[tuple[int, str]]:
    with unpacked(self.path) as file:
      for line in self._raw(file):
        self.number += 1
        if self.number == 1:
          line = line.removeprefix(BYTE_ORDER_MARK)
        self.unterminated = not line.endswith(b"\n")
        yield self.number, self._decoded(line)
    if not self.number:
      raise InputError(f"{self.path} is empty; get the file again")

  def filled(self, record: str) -> Iterator[tuple[int, str]]:
    """The lines, less empty ones at the end of the file; an empty one elsewhere is an error."""
    blank = None
    for number, line in self:
      if not line.strip():
        blank = blank or number
        continue
      if blank:
        raise self.error("the line is empty; remove it", blank)
      yield number, line
    if blank == 1:
      raise self.error(f"the file holds only empty lines; add one {record} a line", 1)

  def _raw(self, file: BinaryIO) -> Iterator[bytes]:
    mark = file.read(2)
    file.seek(0)
    narrow = iter(functools.partial(file.readline, LONGEST), b"")
    try:
      for line in self._from_utf_16(file) if mark in UTF_16 else narrow:
        if len(line) >= LONGEST:
          raise self.error(f"the line has {LONGEST >> 20} MiB or more", self.number + 1)
        yield line
    except UNPACKING as error:
      raise self.error(_damaged(error), self.number + 1) from error

  def _from_utf_16(self, file: BinaryIO) -> Iterator[bytes]:
    """The lines in UTF-8; what is half a pair of surrogates stays so, and is refused there."""
    text = io.TextIOWrapper(file, "utf-16", "surrogatepass", "\n")
    try:
      for line in iter(functools.partial(text.readline, LONGEST), ""):
        yield line.encode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
      raise self.error("the UTF-16 text is cut off or damaged", self.number + 1) from error
    finally:
      text.detach()  # whoever opened the file closes it

  def _decoded(self, line: bytes) -> str:
    if not self.ends:
      line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
      text = line.decode("utf-8")
    except UnicodeDecodeError as error:
      raise self.error(
        f"byte 0x{line[error.start]:02x} at position {error.start + 1} of the line is not UTF-8; "
        "convert the file to UTF-8 (in Excel: save as CSV UTF-8)"
      ) from error
    for character, name in (("\0", "a NUL byte"), ("\r", "a carriage return inside the line")):
      if character in text and not (self.ends and character == "\r"):
        wide = character == "\0" and self.number == 1 and text.count("\0") > len(text) // 3
        how = "the file may be UTF-16: save it as UTF-8" if wide else "remove it"
        raise self.error(f"there is {name} at position {text.index(character) + 1}; {how}")
    return text

  def error(self, problem: str, number: int | None = None) -> InputError:
    """The error for `problem` on line `number` (default: the line given last)."""
    number = number or self.number
    hint = ""
    if self.unterminated and number == self.number:
      hint = " (the file ends on this line without a line break: it may be cut off; get it again)"
    return InputError(f"{self.path}:{number}: {problem}{hint}")


def quoted(text: str, limit: int = 60) -> str:
  """`text` in quotes for a message, shortened to `limit` characters."""
  return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def is_id(value: str) -> bool:
  """Whether a run file, with columns separated by white space, can hold an id."""
  return bool(value) and not _UNWRITABLE.search(value)


def check_id(value: str, name: str, lines: Lines) -> None:
  """Refuses what `is_id` does."""
  if not is_id(value):
    raise lines.error(f"{name} is {quoted(value)}; {ID}")
