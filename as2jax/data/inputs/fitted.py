"""What a run counted in its training data and must remember to rank with: one JSON file each.

The files lie beside the run's vocabulary, in `<workdir>/encoder`.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from etils import epath

from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

FOLDER = "encoder"  # in a run's folder, beside its vocabulary
VERSION = 1  # of the files
T = TypeVar("T")


def remembered(
  kind: type[T], name: str, workdir: epath.PathLike, count: Callable[[], T | None]
) -> T:
  """What the run in `workdir` remembers; where it is new, what `count` gives, written there.

  Args:
    kind: a dataclass of strings, numbers and mappings from strings.
    name: of the file.
    workdir: the run's folder; "" for none.
    count: gives a new one, or None where the data are not loaded.

  Raises:
    InputError: the file is broken, or there is neither a file nor training data.

  """
  folder = epath.Path(workdir) / FOLDER if workdir else None
  if folder is not None and (folder / name).exists():
    return load(kind, folder / name)
  found = count()
  if found is None:
    raise InputError(
      f"--workdir={workdir} does not hold the word frequencies of its training data "
      f"({FOLDER}/{name}): train first"
    )
  if folder is not None:
    save(found, folder / name)
  return found


def save(found: T, path: epath.PathLike) -> None:
  """Writes a file for `load`, whole or not at all."""
  content = {"version": VERSION, "sha256": _digest(found), **dataclasses.asdict(found)}
  write_whole(epath.Path(path), json.dumps(content, ensure_ascii=True))


def load(kind: type[T], path: epath.PathLike) -> T:
  """What `save` wrote.

  Raises:
    InputError: it is absent, cannot be read, or was changed.

  """
  again = "train again, into another --workdir"
  try:
    content = json.loads(epath.Path(path).read_text())
    version, digest = content.pop("version"), content.pop("sha256")
    found = kind(**content)
    whole = version == VERSION and digest == _digest(found)
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
    raise InputError(f"{path} cannot be read ({error!r}); {again}") from None
  if not whole:
    raise InputError(f"{path} is of another version or was changed by hand; {again}")
  return found


def _digest(found: T) -> str:
  values = [getattr(found, field.name) for field in dataclasses.fields(found)]
  plain = [value for value in values if not isinstance(value, Mapping)]
  tables = [sorted(value.items()) for value in values if isinstance(value, Mapping)]
  return hashlib.sha256(json.dumps([*plain, *tables]).encode()).hexdigest()
