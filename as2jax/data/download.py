"""Downloading a data set's files, within a limit of size: all of them, or none."""

import bz2
import gzip
import hashlib
import http.client
import lzma
import struct
import tarfile
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
PIECE = 1 << 20  # bytes copied at once
# What a download raises, and the readers of archives where one is damaged, encrypted or unknown.
FAILED = (
  OSError, EOFError, http.client.HTTPException, zipfile.BadZipFile, tarfile.TarError, zlib.error,
  lzma.LZMAError, struct.error, RuntimeError, ValueError, LookupError, OverflowError,
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
  try:
    scratch.mkdir(parents=True)
    for name, url in (addresses or {"archive": archive}).items():
      logging.info("downloading %s", url)
      with urllib.request.urlopen(url, timeout=SILENCE) as response:
        _copy(response, scratch / name, url, max_bytes)
    if not addresses:
      _unpack(scratch / "archive", names, scratch, max_bytes)
    for name in names:
      _check(scratch / name, sha256.get(name))
      make_durable(scratch / name)
    for name in names:
      (scratch / name).replace(folder / name)
    make_durable(folder)
  except FAILED as error:
    return f"the download failed ({error})"
  finally:
    scratch.rmtree(missing_ok=True)
  return ""


def _copy(source: Any, target: epath.Path, name: str, max_bytes: int) -> None:
  size = 0
  with target.open("wb") as file:
    while part := source.read(PIECE):
      size += len(part)
      if size > max_bytes:
        raise InputError(f"{name}: more than the {max_bytes} bytes that are expected at most")
      file.write(part)


def _unpack(archive: epath.Path, names: Iterable[str], folder: epath.Path, max_bytes: int) -> None:
  """Unpack the members called `names`, in whatever folder of the zip or tar they lie."""
  lacking = set(names)
  with archive.open("rb") as file:
    members = _of_zip(file) if zipfile.is_zipfile(file) else _of_tar(file, folder, max_bytes)
    for path, member in members:
      name = epath.Path(path).name
      if name in lacking:
        _copy(member, folder / name, f"the archive's {name}", max_bytes)
        lacking.remove(name)
  if lacking:
    raise InputError(f"the archive holds no {min(lacking)}")


def _of_zip(file: BinaryIO) -> Iterator[tuple[str, Any]]:
  with zipfile.ZipFile(file) as packed:
    for member in packed.infolist():
      if not member.is_dir():
        with packed.open(member) as content:
          yield member.filename, content


def _of_tar(file: BinaryIO, folder: epath.Path, max_bytes: int) -> Iterator[tuple[str, Any]]:
  """Yield the members; the tar is unpacked first within `max_bytes`, as its headers may name any size."""
  file.seek(0)
  start = file.read(8)
  file.seek(0)
  stream: Any = file
  for mark, opener in UNPACKERS:
    if start.startswith(mark):
      stream = opener(file)
  whole = folder / "unpacked.tar"
  _copy(stream, whole, "the archive", max_bytes)
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
