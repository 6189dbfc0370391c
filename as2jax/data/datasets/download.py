"""Downloading a data set's files, within limits of size and time: all of them, or none."""

import bz2
import gzip
import hashlib
import http.client
import io
import lzma
import struct
import tarfile
import threading
import time
import urllib.error
import urllib.request
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import BinaryIO

from absl import logging
from etils import epath

from as2jax.data.lines import opened
from as2jax.runtime import checksums
from as2jax.runtime.errors import InputError

SILENCE = 8  # seconds after which a server that sends nothing is taken for absent
LONGEST = 3600  # seconds that a download may take in all
PIECE = 1 << 20  # bytes copied at once
FAILED = (OSError, EOFError, http.client.HTTPException, InputError)
# What the readers of archives raise where one is damaged, encrypted or packed in an unknown way.
MALFORMED = (
  zipfile.BadZipFile,
  tarfile.TarError,
  zlib.error,
  lzma.LZMAError,
  struct.error,
  RuntimeError,
  ValueError,
  LookupError,
  OverflowError,
)
UNPACKERS = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open))


def fetch(
  folder: epath.Path,
  names: Iterable[str],
  *,
  archive: str = "",
  addresses: Mapping[str, str],
  sha256: Mapping[str, str],
  max_bytes: int,
) -> str:
  """Downloads files into `folder`, where they appear only once all are whole.

  Args:
    folder: where to.
    names: of the files.
    archive: address of the zip or tar that holds all of them, in whatever folder of it.
    addresses: name -> address, where the files are published one by one.
    sha256: name -> SHA-256 (hex) of its content, where that is known.
    max_bytes: of each download, and of what is unpacked from it.

  Returns:
    The reason of a failure, or "".

  """
  if not archive and not addresses:
    return "there is no public address to download it from"
  # Unique names, because two processes may download at once; the later one changes nothing.
  scratch = folder / f"{uuid.uuid4().hex}.partial"
  end = time.monotonic() + LONGEST
  try:
    scratch.mkdir(parents=True)
    for name, url in (addresses or {"archive": archive}).items():
      _download(url, scratch / name, max_bytes, end)
    if not addresses:
      _unpack(scratch / "archive", names, scratch, max_bytes, end)
    for name in names:
      _check(scratch / name, sha256.get(name))
    _put(scratch, folder, names)
  except FAILED as error:
    return f"the download failed ({error})"
  finally:
    scratch.rmtree(missing_ok=True)
  return ""


def _download(url: str, path: epath.Path, max_bytes: int, end: float) -> None:
  response = _answer(url)
  if isinstance(response, Exception):
    raise InputError(f"{url}: {response}")
  logging.info("downloading %s", url)
  with response, path.open("wb") as file:
    _copy(response, file, url, max_bytes, end)


def _answer(url: str):
  """The open response, or the exception; in a thread, as name resolution has no time limit."""
  box = []

  def ask():
    try:
      box.append(urllib.request.urlopen(url, timeout=SILENCE))
    except (OSError, ValueError, http.client.HTTPException) as error:
      if isinstance(error, urllib.error.HTTPError):
        error.close()  # it is an open response, too
      box.append(error)

  thread = threading.Thread(target=ask, daemon=True)
  thread.start()
  thread.join(SILENCE)
  return box[0] if box else TimeoutError(f"no answer within {SILENCE} seconds")


def _copy(source, target: BinaryIO, name: str, max_bytes: int, end: float) -> None:
  size = 0
  while part := source.read1(PIECE):  # `read` would wait for a whole piece, however long
    size += len(part)
    if size > max_bytes:
      raise InputError(f"{name}: more than the {max_bytes} bytes that are expected at most")
    if time.monotonic() > end:
      raise InputError(f"{name}: not done within {LONGEST} seconds; {size} bytes came")
    target.write(part)


def _unpack(
  archive: epath.Path, names: Iterable[str], folder: epath.Path, max_bytes: int, end: float
) -> None:
  """Unpacks the members called `names`, in whatever folder of the zip or tar they lie."""
  try:
    with opened(archive) as file:
      if zipfile.is_zipfile(file):
        packed = zipfile.ZipFile(file)
        members = {epath.Path(name).name: name for name in packed.namelist()}
        extract = packed.open
      else:
        packed = tarfile.open(fileobj=_Bounded(_unpacking(file), max_bytes), mode="r:")
        members = {epath.Path(m.name).name: m for m in packed.getmembers() if m.isreg()}
        extract = packed.extractfile
      for name in names:
        if name not in members:
          raise InputError(f"the archive holds no {name}")
        with extract(members[name]) as member, (folder / name).open("wb") as output:
          _copy(member, output, f"the archive's {name}", max_bytes, end)
  except MALFORMED as error:
    if isinstance(error, InputError):
      raise
    raise InputError(f"the archive is malformed: {error}") from error


def _unpacking(file: BinaryIO) -> BinaryIO:
  file.seek(0)
  start = file.read(8)
  file.seek(0)
  return next((opener(file) for mark, opener in UNPACKERS if start.startswith(mark)), file)


class _Bounded(io.RawIOBase):
  """A file to read, of which nothing beyond `max_bytes` is: tar's headers may ask for any size."""

  def __init__(self, file: BinaryIO, max_bytes: int):
    self._file, self._max_bytes = file, max_bytes

  def seekable(self) -> bool:
    """Always True."""
    return True

  def tell(self) -> int:
    """The position in the unpacked file."""
    return self._file.tell()

  def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
    """Moves to `offset` from the start."""
    if whence != io.SEEK_SET or not 0 <= offset <= self._max_bytes:
      raise InputError(f"the archive has more than {self._max_bytes} bytes unpacked")
    return self._file.seek(offset)

  def read(self, size: int = -1) -> bytes:
    """Up to `size` bytes."""
    if size < 0 or self.tell() + size > self._max_bytes:
      raise InputError(f"the archive has more than {self._max_bytes} bytes unpacked")
    return self._file.read(size)


def _check(path: epath.Path, sha256: str | None) -> None:
  if sha256 is None:
    logging.info("%s: no official SHA-256 is known; only counts will be compared", path.name)
    return
  with path.open("rb") as file:
    actual = hashlib.file_digest(file, "sha256").hexdigest()
  if actual != sha256:
    raise InputError(
      f"{path.name} is not the official file: its SHA-256 is {actual}, expected {sha256}"
    )


def _put(scratch: epath.Path, folder: epath.Path, names: Iterable[str]) -> None:
  """Moves files from `scratch` to `folder`, each only once it is whole on the disk."""
  for name in names:
    checksums.make_durable(scratch / name)
    (scratch / name).replace(folder / name)
  checksums.make_durable(folder)
