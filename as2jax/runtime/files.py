"""Files and folders: written whole, read only where they are regular, known by checksums.

CRC-32 finds every damage within 32 successive bits, and all but one in 2^32 of the others; digests of
arrays are SHA-256.
"""

import atexit
import concurrent.futures
import contextlib
import errno
import functools
import hashlib
import json
import logging
import os
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
from etils import epath

from as2jax.runtime import processes
from as2jax.runtime.errors import InputError

OFF = "off"  # in place of a cache's folder
CACHE = "AS2JAX_CACHE (data.cache where that is set)"  # what names the folder of derived files
MAX_JSON = 64 << 20  # bytes
PIECE = 1 << 20  # bytes read at once
THREADS = 4  # digests release the interpreter's lock
_SETTLED = 1.0  # seconds after which a change gives a file another time, on any file system
_HEAD = '{"checksum": "%s", '  # of a sealed text
_known: dict[tuple, str] = {}  # checksums by what a file system says of a file
log = logging.getLogger(__name__)
_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a named pipe"}


def data_folder(configured: str) -> epath.Path:
  """Returns the folder of source files: `configured`, $AS2JAX_DATA or `data` in the default cache."""
  chosen = configured or os.environ.get("AS2JAX_DATA") or os.path.join(_default_cache(), "data")
  return epath.Path(chosen).expanduser()


def cache_folder(configured: str = "") -> epath.Path:
  """Returns the folder of derived files: `configured`, $AS2JAX_CACHE or the default cache.

  The default is as2jax in $XDG_CACHE_HOME or ~/.cache; `off` is a folder that goes with this process.
  """
  chosen = cache_setting(configured)
  return scratch_folder() if chosen == OFF else epath.Path(chosen).expanduser()


def cache_setting(configured: str) -> str:
  """Returns what `cache_folder` follows, which may be `off`."""
  return configured or os.environ.get("AS2JAX_CACHE") or _default_cache()


def _default_cache() -> str:
  home = os.environ.get("XDG_CACHE_HOME", "")
  return os.path.join(home if os.path.isabs(home) else "~/.cache", "as2jax")


@functools.cache
def scratch_folder() -> epath.Path:
  """Makes the folder of this process for what no cache keeps; InputError where there is no room."""
  try:
    folder = tempfile.mkdtemp(prefix="as2jax-")
  except OSError as error:
    raise InputError(
      f"no temporary folder can be made ({error}): name a folder of yours in TMPDIR"
    ) from error
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  return epath.Path(folder)


def writable(cache: epath.Path, below: str, setting: str = CACHE, mode: int = 0o777) -> epath.Path:
  """Makes and returns the folder `below` a cache; one of this process where that cannot be written.

  `setting` names the cache; `mode` is that of a new folder.
  """
  folder = cache / below
  try:
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    if "://" in str(folder) or os.access(folder, os.W_OK):
      return folder
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
  except OSError as error:
    warn_unwritable(cache, error, setting)
  folder = scratch_folder() / below
  folder.mkdir(mode=mode, parents=True, exist_ok=True)
  return folder


def warn_unwritable(cache: epath.PathLike, error: OSError, setting: str = CACHE) -> None:
  """Warns once of a cache that cannot be written, without which the work goes on."""
  warn_once(
    f"the cache {cache} cannot be written ({error.strerror or error}), so that what it would keep is made in "
    f"each process: make room, or name another folder in {setting}"
  )


@functools.lru_cache
def warn_once(text: str, written: int = 0) -> None:
  """Logs a text, once for what was `written` at that time, however often it is looked at."""
  del written
  log.warning("%s", text)


def refuse_others(path: epath.PathLike) -> None:
  """Raises InputError where `path` is something else than a file: reading it might never end."""
  if "://" in os.fspath(path):
    kind = stat.S_IFDIR if epath.Path(path).is_dir() else stat.S_IFREG
  else:
    try:
      kind = stat.S_IFMT(os.stat(path).st_mode)
    except OSError:  # whoever opens it says so
      return
  if kind != stat.S_IFREG:
    raise InputError(f"{path} is {_KINDS.get(kind, 'a device')}; give the path of a file")


def read_json(path: epath.PathLike, max_bytes: int = MAX_JSON) -> Any:
  """Reads the JSON (UTF-8) in a file; InputError where there is none within `max_bytes`."""
  path = epath.Path(path)
  refuse_others(path)
  try:
    if path.stat().length > max_bytes:
      raise InputError(f"{path}: has more than {max_bytes >> 20} MiB; this is no such JSON file")
    text = path.read_bytes()
  except OSError as error:
    raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
  try:
    return json.loads(text.decode())
  except (RecursionError, ValueError) as error:
    why = "nested too deeply" if isinstance(error, RecursionError) else error
    raise InputError(f"{path}: not valid JSON ({why})") from None


def read_object(path: epath.PathLike, advice: str) -> dict[str, Any]:
  """Reads the JSON object in a file; errors as `read_json`, or another value, end in `advice`."""
  try:
    content = read_json(path)
  except InputError as error:
    raise InputError(f"{error}; {advice}") from None
  if not isinstance(content, dict):
    raise InputError(f"{path}: holds no JSON object; {advice}")
  return content


def tuples(value: Any) -> Any:
  """Returns a value of JSON with tuples for its lists."""
  if isinstance(value, dict):
    return {key: tuples(inner) for key, inner in value.items()}
  return tuple(map(tuples, value)) if isinstance(value, list) else value


def write_whole(path: epath.PathLike, content: str | bytes) -> None:
  """Writes a file atomically: a reader sees the old or the new content, never a part.

  Content and name are on the disk when this returns. Of several processes the first one writes.
  """
  if not processes.first():
    return
  path = epath.Path(path)
  content = content.encode() if isinstance(content, str) else content
  path.parent.mkdir(parents=True, exist_ok=True)
  if "://" in str(path):
    path.write_bytes(content)  # an object becomes visible only when it is complete
    return
  scratch = path.parent / f".{path.name}.{os.getpid()}"
  try:
    scratch.write_bytes(content)
    make_durable(scratch)
    os.replace(scratch, path)
    make_durable(path.parent)
  except OSError as error:  # of a full disk, it would not say of which file
    scratch.unlink(missing_ok=True)
    error.filename = str(path)
    raise


def make_durable(path: epath.PathLike) -> None:
  """Makes the content of a local file, or the names in a local folder, outlast a power failure.

  Without it, a new name could reach the disk before the content does.
  """
  if "://" in os.fspath(path):  # an object is durable once it is visible
    return
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


@contextlib.contextmanager
def lock(workdir: epath.PathLike, option: str = "") -> Generator[None, None, None]:
  """Locks a folder, which it makes, for this process; the lock ends however the process ends.

  With several processes, the first one holds the lock. Object stores cannot lock.

  InputError: another process holds the lock; the message calls the folder `option`.
  """
  with contextlib.ExitStack() as held:
    processes.by_first(lambda: _acquire(held, epath.Path(workdir), option))
    yield


def _acquire(held: contextlib.ExitStack, workdir: epath.Path, option: str) -> None:
  from filelock import FileLock, Timeout

  option = option or str(workdir)
  try:
    workdir.mkdir(parents=True, exist_ok=True)
    if "://" not in str(workdir):
      held.enter_context(FileLock(workdir / ".lock", timeout=0))
  except Timeout:
    raise InputError(
      f"{option} is in use by another process; wait for it, or give another folder"
    ) from None
  except OSError as error:
    raise InputError(f"{option} cannot be written: {error}") from error


@contextlib.contextmanager
def open_working(output: epath.PathLike) -> Generator[tuple[epath.Path, epath.Path], None, None]:
  """Open a folder and its part for unfinished work, which no other process can open meanwhile.

  A command puts its results beside that part, which is removed at the end: as long as it is there,
  what lies beside it is unfinished, too. After an error it stays, and the same command goes on.

  InputError: the folder holds anything, and no unfinished work, or is in use.
  """
  folder = epath.Path(output)
  working = folder / "working"
  if folder.exists() and not working.exists() and any(folder.iterdir()):
    raise InputError(f"{folder} is not empty; name a new folder, or remove this one")
  with lock(working, str(folder)):
    yield folder, working
    working.rmtree()


def checksum_of(path: epath.PathLike) -> str:
  """Returns the checksum of a file's bytes, read once a process while size and times stay the same."""
  identity = _identity(path)
  if identity in _known:
    return _known[identity]
  digest = compute_checksum(path)
  # A file that has just changed could change again within one tick of its clock.
  if _identity(path) == identity and time.time() - max(identity[-2:]) > _SETTLED:
    _known[identity] = digest
  return digest


def compute_checksum(path: epath.PathLike) -> str:
  """Returns the checksum of a file's bytes, read now."""
  total = 0
  with epath.Path(path).open("rb") as file:
    while part := file.read(PIECE):
      total = zlib.crc32(part, total)
  return f"{total:08x}"


def _identity(path: epath.PathLike) -> tuple:
  """Returns inode (or address), size and times (seconds, last); renaming its folder changes none."""
  if "://" in os.fspath(path):
    remote = epath.Path(path).stat()
    return os.fspath(path), remote.length, remote.mtime, remote.mtime
  one = os.stat(path)
  times = one.st_mtime_ns, one.st_ctime_ns, one.st_mtime, one.st_ctime
  return one.st_dev, one.st_ino, one.st_size, *times


def seal(fields: Mapping[str, Any]) -> str:
  """Formats `fields` as a JSON object that starts with the checksum of all that follows it."""
  rest = json.dumps(fields)[1:]
  return _HEAD % f"{zlib.crc32(rest.encode()):08x}" + rest


def unseal(text: str) -> dict[str, Any]:
  """Reads what `seal` has written; ValueError where it is damaged, or was not sealed."""
  head = len(_HEAD % ("0" * 8))
  rest = text[head:]
  if text[:head] != _HEAD % f"{zlib.crc32(rest.encode()):08x}":
    raise ValueError("its own checksum is another: it is damaged, or of an earlier version")
  return json.loads("{" + rest)


def digest_of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
  """Returns the SHA-256 (hex) of arrays with their names, types and shapes."""
  names, digest = sorted(arrays), hashlib.sha256()
  with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
    for name, one in zip(names, pool.map(_digest_of_array, map(arrays.get, names))):
      digest.update(f"{name} {one}\n".encode())
  return digest.hexdigest()


def _digest_of_array(array: np.ndarray) -> str:
  digest = hashlib.sha256(f"{array.dtype} {array.shape} ".encode())
  digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)  # not copied
  return digest.hexdigest()
