"""The documents that `as2jax index` reads."""

import json
import os
from collections.abc import Sequence

from as2jax.runtime.errors import InputError

TEXT, IDS = ("text", "candidate", "sentence", "answer"), ("id", "candidate_id", "docno")


def read(file: str) -> tuple[Sequence[str] | None, Sequence[str]]:
  """Ids (None where the file has none) and texts: JSON lines, or a text a line.

  Raises:
    InputError: no such file, a line that is no JSON object, has no text, or lacks its id.

  """
  try:
    with open(file, encoding="utf-8-sig") as lines:
      filled = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
  except (OSError, UnicodeDecodeError) as error:
    raise InputError(f"{file} cannot be read: {error}") from error
  if not filled:
    raise InputError(f"{file} holds no document: give one a line")
  if os.path.splitext(file)[1].lower() not in (".jsonl", ".json", ".ndjson"):
    return None, [line.strip() for _, line in filled]
  rows = [_row(line, f"{file}:{number}") for number, line in filled]
  ids = [row_id for row_id, _ in rows]
  if any(ids) and not all(ids):
    raise InputError(
      f"{file}: some documents have an id and some have none: give it to all or none"
    )
  return (ids if all(ids) else None), [text for _, text in rows]


def _row(line: str, where: str) -> tuple[str, str]:
  try:
    row = json.loads(line)
  except ValueError as error:
    raise InputError(f"{where}: no JSON ({error}); give an object a line") from error
  text = next((row[name] for name in TEXT if isinstance(row, dict) and name in row), None)
  if not isinstance(text, str) or not text.strip():
    raise InputError(f"{where}: no text; give it as one of {', '.join(TEXT)}")
  return str(next((row[name] for name in IDS if name in row), "")), text
