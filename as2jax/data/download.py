"""Downloading a data set's files, within limits of size and time: all of them, or none."""

import bz2
import gzip
import hashlib
import http.client
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
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from absl import logging
from etils import epath

from as2jax.runtime.errors import InputError
from as2jax.runtime.files import make_durable

SILENCE = 8  # seconds after which a server that sends nothing is taken for absent
LONGEST = 3600  # seconds that a download may take in all
PIECE = 1 << 20  # bytes copied at once
FAILED = (OSError, EOFError, http.client.HTTPException, InputError)
# What the readers of archives raise where one is damaged, encrypted or packed in an unknown way.
MALFORMED = (
  zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error, RuntimeError,
  ValueError, LookupError, OverflowError,
)  # fmt: skip
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
  """Download files into `folder`, where they appear only once all are whole.

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
      logging.info("downloading %s", url)
      with _answer(url) as response:
        _copy(response, scratch / name, url, max_bytes, end)
    if not addresses:
      _unpack(scratch / "archive", names, scratch, max_bytes, end)
    for name in names:
      _check(scratch / name, sha256.get(name))
    for name in names:
      make_durable(scratch / name)
      (scratch / name).replace(folder / name)
    make_durable(folder)
  except FAILED as error:
    return f"the download failed ({error})"
  finally:
    scratch.rmtree(missing_ok=True)
  return ""


def _answer(url: str) -> Any:
  """Open an address, in a thread, as name resolution has no time limit."""
  box: list[Any] = []

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
  answer = box[0] if box else f"no answer within {SILENCE} seconds"
  if isinstance(answer, (str, Exception)):
    raise InputError(f"{url}: {answer}")
  return answer


def _copy(source: Any, target: epath.Path, name: str, max_bytes: int, end: float) -> None:
  size = 0
  with target.open("wb") as file:
    while part := source.read1(PIECE):  # `read` would wait for a whole piece, however long
      size += len(part)
      if size > max_bytes:
        raise InputError(f"{name}: more than the {max_bytes} bytes that are expected at most")
      if time.monotonic() > end:
        raise InputError(f"{name}: not done within {LONGEST} seconds; {size} bytes came")
      file.write(part)


def _unpack(
  archive: epath.Path, names: Iterable[str], folder: epath.Path, max_bytes: int, end: float
) -> None:
  """Unpack the members called `names`, in whatever folder of the zip or tar they lie."""
  try:
    lacking = set(names)
    with archive.open("rb") as file:
      members = _of_zip(file) if zipfile.is_zipfile(file) else _of_tar(file, folder, max_bytes, end)
      for path, member in members:
        name = epath.Path(path).name
        if name in lacking:
          _copy(member, folder / name, f"the archive's {name}", max_bytes, end)
          lacking.remove(name)
    if lacking:
      raise InputError(f"the archive holds no {min(lacking)}")
  except MALFORMED as error:
    if isinstance(error, InputError):
      raise
    raise InputError(f"the archive is malformed: {error}") from error


def _of_zip(file: BinaryIO) -> Iterator[tuple[str, Any]]:
  with zipfile.ZipFile(file) as packed:
    for member in packed.infolist():
      if not member.is_dir():
        with packed.open(member) as content:
          yield member.filename, content


def _of_tar(
  file: BinaryIO, folder: epath.Path, max_bytes: int, end: float
) -> Iterator[tuple[str, Any]]:
  """Yield the members; the tar is unpacked first within `max_bytes`, as its headers may name any size."""
  file.seek(0)
  start = file.read(8)
  file.seek(0)
  stream: Any = next((opener(file) for mark, opener in UNPACKERS if start.startswith(mark)), file)
  whole = folder / "unpacked.tar"
  _copy(stream, whole, "the archive", max_bytes, end)
  with tarfile.open(whole, mode="r|") as packed:  # a stream: it reads in small pieces
    for member in packed:
      if member.isreg():
        yield member.name, packed.extractfile(member)


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
