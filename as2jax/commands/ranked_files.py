"""Files into `as2jax rank` and out of it."""

import contextlib
import csv
import io
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from as2jax.runtime.errors import InputError

DIALECTS = {".jsonl": None, ".tsv": "excel-tab", ".csv": "excel"}


@contextlib.contextmanager
def opened(file: str) -> Iterator[str]:
  """The path of a file; of what comes from standard input where it is `-`."""
  if file != "-":
    yield file
    return
  if sys.stdin.isatty():
    raise InputError(
      "name a file of questions with candidates, or pipe one in: as2jax rank RUN FILE"
    )
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "standard input")
    with open(path, "wb") as copy:
      shutil.copyfileobj(sys.stdin.buffer, copy)
    yield path


def check(target: str) -> None:
  """Raises InputError where the ranking could not be written to `target`, "" for no file."""
  if target and os.path.splitext(target)[1].lower() not in DIALECTS:
    raise InputError(f"--output={target}: name a file that ends in {', '.join(DIALECTS)}")
  folder = os.path.dirname(os.path.abspath(target))
  if target and (os.path.isdir(target) or (os.path.exists(folder) and not os.path.isdir(folder))):
    raise InputError(f"--output={target} cannot be written: name a file in a folder")


def write(target: str, rows: Sequence[Mapping[str, Any]]) -> None:
  """Writes the rows whole, in the form that the file's name asks for; see `check`."""
  from etils import epath

  from as2jax.runtime.files import write_whole

  dialect = DIALECTS[os.path.splitext(target)[1].lower()]
  if dialect is None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
  else:
    file = io.StringIO()
    writer = csv.DictWriter(
      file, list(rows[0]) if rows else [], dialect=dialect, lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    text = file.getvalue()
  try:
    epath.Path(target).parent.mkdir(parents=True, exist_ok=True)
    write_whole(epath.Path(target), text)
  except OSError as error:
    raise InputError(f"--output={target} cannot be written: {error}") from error


def text(rows: Sequence[Mapping[str, Any]]) -> str:
  """The rows for a terminal: each question, and its candidates as they rank."""
  lines = []
  for _, its in itertools.groupby(rows, lambda row: row["question_id"]):
    for row in its:
      if row["rank"] == 1:
        lines += ["", " ".join(row["question"].split())]
      lines.append(f"{row['rank']:4d}  {row['score']:8.4f}  {' '.join(row['candidate'].split())}")
  return "\n".join(lines[1:])
