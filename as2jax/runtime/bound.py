"""Files of a run that decide its scores and figures, bound by digests in its `run.json`.

`run.json` begins with a checksum of itself. Its `files` has a list of SHA-256 by name of each file: of what
lies there, and before it of what lay there, as a kill may come before the new file is written. An exported
folder has the SHA-256 of all its files in the metadata of its card, `README.md`.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterable
from typing import Any

from etils import epath

from as2jax.runtime import files, processes
from as2jax.runtime.errors import InputError

NAME = "run.json"
FILES = "files"
ADVICE = {  # by the first part of a name
  "config.json": "or copy it out of this folder and train with it: as2jax train rerun:COPY -o ANOTHER",
  "results.json": "or delete it and repeat the command that made it",
  "evaluations.jsonl": "or delete it: how often splits were evaluated is then not known",
  "metrics.jsonl": "or delete it: the run is then shown without its log",
}
CARD, KEY = "README.md", "as2jax_files: "  # of an exported folder; in the card's metadata
EVALUATE = "or evaluate the run again (as2jax evaluate)"

log = logging.getLogger(__name__)


def read(folder: epath.PathLike) -> dict[str, Any]:
  """Reads `run.json`, {} where there is none; InputError where it is not what was written."""
  path = epath.Path(folder) / NAME
  files.refuse_others(path)
  try:
    content = files.unseal(path.read_bytes().decode("ascii"))
    if FILES not in content:
      raise ValueError(f"its {FILES!r} are missing")
    return content
  except FileNotFoundError:
    return {}
  except ValueError as error:
    raise InputError(
      f"{path} is not what was written ({error}): put it back, or move {folder} away and repeat the "
      "command that made it"
    ) from None


def write_record(folder: epath.PathLike, content: dict[str, Any]) -> None:
  """Writes `run.json`."""
  files.write_whole(epath.Path(folder) / NAME, files.seal(content))


def file(folder: epath.PathLike, name: str | os.PathLike) -> epath.Path:
  """Returns the path of a run's file; InputError where it is not what the run wrote, or no file.

  A file that the record does not name is bound by nothing.
  """
  path, name, known = epath.Path(folder) / name, os.fspath(name), read(folder).get(FILES, {})
  files.refuse_others(path)
  if name in known and path.exists() and digest(path) not in known[name]:
    raise InputError(
      f"{path} is not what the run wrote ({NAME} has the SHA-256): put it back, "
      f"{ADVICE.get(name, EVALUATE)}"
    )
  return path


def bind(folder: epath.PathLike, *names: str) -> None:
  """Records the digests of files and of all files in folders; makes `run.json` where there is none."""
  if not processes.first():
    return
  content = read(folder)
  new = {name: [of_file] for name, of_file in _digests(folder, names).items()}
  write_record(folder, {**content, FILES: {**content.get(FILES, {}), **new}})


def write(folder: epath.PathLike, name: str, text: str) -> None:
  """Writes a text file of a run whole, and first its digest where the run has a record."""
  if not processes.first():
    return
  content = read(folder)
  if content:
    known = content[FILES]
    new = hashlib.sha256(text.encode()).hexdigest()
    write_record(folder, {**content, FILES: {**known, name: [*known.get(name, ())[-1:], new]}})
  files.write_whole(epath.Path(folder) / name, text)


def card_line(folder: epath.PathLike) -> str:
  """Returns the line of a card's metadata that binds the files of an exported folder."""
  return KEY + json.dumps(_digests(folder, [""]))


def check_card(folder: epath.PathLike) -> None:
  """Compares a published folder with the digests in its card; InputError names what has changed."""
  folder = epath.Path(folder)
  card, line = folder / CARD, b""
  files.refuse_others(card)
  for line in card.read_bytes().split(b"\n---")[0].splitlines() if card.exists() else ():
    if line.startswith(KEY.encode()):
      break
  else:
    log.info("%s: no digest of its files in %s: they are taken as they are", folder, CARD)
    return
  try:
    known = dict(json.loads(line.decode().removeprefix(KEY)))
  except (ValueError, TypeError):
    known = {CARD: ""}
  here = _digests(folder, [""])
  for name in sorted(known.keys() | here.keys()):
    if known.get(name) != here.get(name):
      raise InputError(
        f"{folder / name} is not what as2jax export wrote: export the run again, or if it was changed on "
        f"purpose take the line {KEY.strip()} out of {card}"
      )


def _digests(folder: epath.PathLike, names: Iterable[str]) -> dict[str, str]:
  """Returns the digests of files and of all in folders, by name; of hidden files and cards none."""
  found, left = {}, [epath.Path(folder) / name for name in names]
  while left:
    path = left.pop()
    if path.is_dir():
      left += [inner for inner in path.iterdir() if not inner.name.startswith(".")]
    elif path.exists() and path.name != CARD:
      found[os.fspath(path.relative_to(folder))] = digest(path)
  return found


def digest(path: epath.Path) -> str:
  """Returns the SHA-256 (hex) of a file."""
  return hashlib.sha256(path.read_bytes()).hexdigest()
