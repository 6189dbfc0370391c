"""What inputs count or learn in the training questions, kept by the run: one JSON file each.

The files lie in the run's folder, `<workdir>/inputs/<name>.json`. A run that is continued, evaluated
or used to rank reads them, and so does a run that starts from it with `warm_start.scope` = `all`.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from etils import epath

from as2jax.data.inputs.protocol import Input
from as2jax.data.record import Question, fingerprint
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json, write_whole

FOLDER = "inputs"  # in a run's folder
VERSION = 2  # of the files
MAX_BYTES = 2 << 30  # of one of them: tens of millions of words with their counts


def recall(
  entry: Input, workdir: epath.PathLike, questions: Callable[[], Sequence[Question] | None]
) -> Any:
  """What the run in `workdir` has fitted for an input; where it is new, fitted now and written there.

  Args:
    entry: the input.
    workdir: the run's folder; "" for none.
    questions: gives the training questions, or None where the data are not loaded.

  Raises:
    InputError: the file is broken, or there is neither a file nor training data.

  """
  if type(entry).fit is Input.fit:
    return None
  path = epath.Path(workdir) / FOLDER / f"{entry.name}.json" if workdir else None
  if path is not None and path.exists():
    return load(path)
  train = questions()
  if train is None:
    raise InputError(
      f"--workdir={workdir} does not hold what {entry.name!r} counts in the training data "
      f"({FOLDER}/{entry.name}.json): train first"
    )
  # Through JSON, so that the run that fits and those that read have equal values.
  values = json.loads(json.dumps(entry.fit(train)))
  if path is not None:
    save(values, fingerprint(train), path)
  return values


def forget(workdir: epath.PathLike) -> None:
  """Removes the files of a run that never began."""
  (epath.Path(workdir) / FOLDER).rmtree(missing_ok=True)


def save(values: Any, source: str, path: epath.PathLike) -> None:
  """Writes a file for `load`, whole or not at all.

  Args:
    values: JSON data.
    source: the fingerprint of the questions that they come from.
    path: of the file.

  """
  content = {"version": VERSION, "sha256": digest(values), "source": source, "values": values}
  write_whole(epath.Path(path), json.dumps(content, ensure_ascii=True))


def load(path: epath.PathLike) -> Any:
  """The values that `save` wrote.

  Raises:
    InputError: the file is absent, cannot be read, or was changed.

  """
  again = "train again, into another --workdir"
  try:
    content = read_json(path, MAX_BYTES)
    values = content["values"]
    whole = content["version"] == VERSION and content["sha256"] == digest(values)
  except InputError as error:
    raise InputError(f"{error}; {again}") from None
  except (KeyError, TypeError) as error:
    raise InputError(f"{path} cannot be read ({error!r}); {again}") from None
  if not whole:
    raise InputError(f"{path} is of another version or was changed by hand; {again}")
  return values


def digest(values: Any) -> str:
  """SHA-256 (hex) of what an input has fitted."""
  return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
