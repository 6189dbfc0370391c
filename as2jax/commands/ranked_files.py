"""Files into `as2jax rank` and out of it."""

import contextlib
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from as2jax.runtime.errors import InputError


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


def text(rows: Sequence[Mapping[str, Any]]) -> str:
  """The rows for a terminal: each question, and its candidates as they rank."""
  lines = []
  for _, its in itertools.groupby(rows, lambda row: row["question_id"]):
    for row in its:
      if row["rank"] == 1:
        lines += ["", " ".join(row["question"].split())]
      lines.append(f"{row['rank']:4d}  {row['score']:8.4f}  {' '.join(row['candidate'].split())}")
  return "\n".join(lines[1:])
