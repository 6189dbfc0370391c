"""Downloading a data set's files, within a limit of size: all of them, or none."""

import hashlib
import http.client
import logging
import lzma
import struct
import tarfile
import urllib.request
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from etils import epath

from as2jax.runtime.errors import InputError
from as2jax.runtime.files import make_durable

log = logging.getLogger(__name__)

SILENCE = 8  # seconds after which a server that sends nothing is taken for absent
PIECE = 1 << 20  # bytes copied at once
# What a download raises, and the readers of archives where one is damaged, encrypted or unknown.
FAILED = (
  OSError, EOFError, http.client.HTTPException, zipfile.BadZipFile, tarfile.TarError, zlib.error,
  lzma.LZMAError, struct.error, RuntimeError, ValueError, LookupError, OverflowError,
)  # fmt: skip


def fetch(spec: Any, folder: epath.Path) -> str:
  """Download the files of a `Spec` into `folder`, where they appear only once all are whole.

  Returns:
    The reason of a failure, or "".

  """
  if not spec.url and not spec.addresses:
    return "there is no public address to download it from"
  # Unique names, because two processes may download at once; the later one changes nothing.
  scratch = folder / f"{uuid.uuid4().hex}.partial"
  try:
    scratch.mkdir(parents=True)
    for name, url in (spec.addresses or {"archive": spec.url}).items():
      log.info("downloading %s", url)
      with urllib.request.urlopen(url, timeout=SILENCE) as response:
        _copy(response, scratch / name, url, spec.max_bytes)
    if not spec.addresses:
      unpack(scratch / "archive", spec.names, scratch, spec.max_bytes)
    for name in spec.names:
      with (scratch / name).open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
      if actual != spec.sha256.get(name, actual):
        raise InputError(f"{name} is not the official file: its SHA-256 is {actual}")
      make_durable(scratch / name)
    for name in spec.names:
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


def unpack(archive: epath.Path, names: Iterable[str], folder: epath.Path, max_bytes: int) -> None:
  """Unpack the members called `names`, in whatever folder of the zip or tar they lie."""
  lacking = set(names)
  for path, member in _members(archive):
    name = epath.Path(path).name
    if name in lacking:
      _copy(member, folder / name, f"the archive's {name}", max_bytes)
      lacking.remove(name)
  if lacking:
    raise InputError(f"the archive holds no {min(lacking)}")


def _members(archive: epath.Path) -> Iterator[tuple[str, Any]]:
  """Yield (path, open file) of each member of a zip, or of a tar that is packed or not."""
  if zipfile.is_zipfile(archive):
    with zipfile.ZipFile(archive) as packed:
      for name in packed.namelist():
        with packed.open(name) as content:
          yield name, content
    return
  with tarfile.open(archive, mode="r|*") as packed:  # a stream: it reads in small pieces
    for member in packed:
      if member.isreg():
        yield member.name, packed.extractfile(member)
