"""Checksums of the files of a cache, and of the JSON that lists them: what disks and copies damage.
Digests of arrays, which say whether two are the same.

CRC-32 finds every damage within 32 successive bits, and all but one in 2^32 of the others. It is no
defence against somebody who means to deceive.
"""

import concurrent.futures
import hashlib
import json
import os
import time
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

PIECE = 1 << 20  # bytes read at once
THREADS = 4  # digests release the interpreter's lock
_SETTLED = 1.0  # seconds after which a change gives a file another time, on any file system
_HEAD = '{"checksum": "%s", '  # of a sealed text
_known: dict[tuple, str] = {}  # by what a file system says of a file


def of_file(path: epath.PathLike) -> str:
  """Returns the checksum of a file's bytes, read once a process while size and times stay the same."""
  identity = _identity(path)
  if identity in _known:
    return _known[identity]
  digest = compute(path)
  # A file that has just changed could change again within one tick of its clock.
  if _identity(path) == identity and time.time() - max(identity[-2:]) > _SETTLED:
    _known[identity] = digest
  return digest


def compute(path: epath.PathLike) -> str:
  """The checksum of a file's bytes, read now."""
  total = 0
  with epath.Path(path).open("rb") as file:
    while part := file.read(PIECE):
      total = zlib.crc32(part, total)
  return f"{total:08x}"


def of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
  """SHA-256 (hex) of arrays with their names, types and shapes, several of them at a time."""
  names = sorted(arrays)
  with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
    digests = pool.map(lambda name: _of_array(arrays[name]), names)
    lines = [f"{name} {digest}\n" for name, digest in zip(names, digests)]
  return hashlib.sha256("".join(lines).encode()).hexdigest()


def _of_array(array: np.ndarray) -> str:
  digest = hashlib.sha256(f"{array.dtype} {array.shape} ".encode())
  digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)  # not copied
  return digest.hexdigest()


def _identity(path: epath.PathLike) -> tuple:
  """Inode (or address), size and times (seconds, last); renaming its folder changes none."""
  if "://" in os.fspath(path):
    stat = epath.Path(path).stat()
    return os.fspath(path), stat.length, stat.mtime, stat.mtime
  stat = os.stat(path)
  times = stat.st_mtime_ns, stat.st_ctime_ns
  return stat.st_dev, stat.st_ino, stat.st_size, *times, *(time / 1e9 for time in times)


def sealed(fields: dict[str, Any]) -> str:
  """A JSON object of `fields` that starts with the checksum of all that follows it."""
  rest = json.dumps(fields)[1:]
  return _HEAD % f"{zlib.crc32(rest.encode()):08x}" + rest


def unsealed(text: str) -> dict[str, Any]:
  """The inverse of `sealed`.

  Raises:
    ValueError: the text is damaged, or was not sealed.

  """
  head = len(_HEAD % ("0" * 8))
  rest = text[head:]
  if text[:head] != _HEAD % f"{zlib.crc32(rest.encode()):08x}":
    raise ValueError("its own checksum is another: it is damaged, or of an earlier version")
  return json.loads("{" + rest)


def make_durable(path: epath.PathLike) -> None:
  """Makes the content of a local file, or the names in a local folder, outlast a power failure.

  A rename is of use only behind this: the new name could reach the disk before the content does.
  """
  if "://" in os.fspath(path):  # an object is durable once it is visible
    return
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
