"""Files that others wrote: regular ones alone are opened, and their JSON cannot exhaust a process."""

import json
import os
import stat
from typing import Any

from etils import epath

from as2jax.runtime.errors import InputError

MAX_JSON = 64 << 20  # bytes
_KINDS = (
  (stat.S_ISDIR, "a directory"),
  (stat.S_ISFIFO, "a named pipe"),
  (stat.S_ISSOCK, "a socket"),
  (stat.S_ISCHR, "a device"),
  (stat.S_ISBLK, "a device"),
)


def refuse_others(path: epath.PathLike) -> None:
  """Raises InputError where `path` is something else than a file: reading it might never end."""
  if "://" in os.fspath(path):
    if epath.Path(path).is_dir():
      raise InputError(f"{path} is a directory; give the path of a file")
    return
  try:
    mode = os.stat(path).st_mode
  except OSError:  # whoever opens it says so
    return
  for is_kind, kind in _KINDS:
    if is_kind(mode):
      raise InputError(f"{path} is {kind}; give the path of a file")


def read_json(path: epath.PathLike, max_bytes: int = MAX_JSON) -> Any:
  """The JSON (UTF-8) in a file.

  Raises:
    InputError: it cannot be read, is no file, has more than `max_bytes`, is no JSON, or is
      nested too deeply.

  """
  path = epath.Path(path)
  refuse_others(path)
  try:
    if path.stat().length > max_bytes:
      raise InputError(f"{path}: has more than {max_bytes >> 20} MiB; this is no such JSON file")
    return json.loads(path.read_text(encoding="utf-8"))
  except OSError as error:
    raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
  except RecursionError:
    raise InputError(f"{path}: not valid JSON (nested too deeply)") from None
  except ValueError as error:
    if isinstance(error, InputError):
      raise
    raise InputError(f"{path}: not valid JSON ({error})") from None


def read_object(path: epath.PathLike, advice: str) -> dict[str, Any]:
  """The JSON object in a file; errors as `read_json`, or another kind of value, end in `advice`."""
  try:
    content = read_json(path)
  except InputError as error:
    raise InputError(f"{error}; {advice}") from None
  if not isinstance(content, dict):
    raise InputError(f"{path}: holds no JSON object; {advice}")
  return content
