"""Damage to files, as disks, copies, editors and downloads do it, and what a reader may answer."""

import pathlib
import random
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import strategies as st

from as2jax.runtime.errors import InputError

KINDS = ("cut", "delete", "insert", "overwrite", "flip", "drop", "repeat", "swap")
JUNK = (b"\n", b"\t", b"\r\n", b'"', b"\0", b"{", b"}", b",")
MORE_JUNK = (
  *JUNK, b"[" * 5000, b'{"a":' * 5000, b"-", b"1e999", b"99999999999", b"null", b"\xff",
  b"\xed\xa0\x80", b"<", b"&", b"</", b"NaN",
)  # fmt: skip


def damaged(draw, data: bytes, junk: Sequence[bytes] = ()) -> bytes:
  """`damaged_by` drawn by hypothesis, perhaps with one of a format's own `junk` before it."""
  rng = draw(st.randoms(use_true_random=False))
  if junk and rng.random() < 0.5:
    at = rng.randint(0, len(data))
    data = data[:at] + rng.choice(junk) + data[at:]
  return damaged_by(rng, data)


def damaged_by(rng: random.Random, data: bytes, junk: Sequence[bytes] = JUNK) -> bytes:
  """`data` after one to three damages."""
  for _ in range(rng.randint(1, 3)):
    kind, at = rng.choice(KINDS), rng.randint(0, len(data))
    if kind == "cut":
      data = data[:at]
    elif kind == "delete":
      data = data[:at] + data[at + rng.randint(1, 40) :]
    elif kind == "insert":
      data = (
        data[:at] + rng.choice((rng.randbytes(rng.randint(1, 4)), rng.choice(junk))) + data[at:]
      )
    elif kind == "overwrite":
      new = rng.choice((rng.randbytes(rng.randint(1, 3)), rng.choice(junk)))
      data = data[:at] + new + data[at + len(new) :]
    elif kind == "flip" and at < len(data):
      data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    else:
      data = _lines_moved(rng, data, kind)
  return data


def _lines_moved(rng: random.Random, data: bytes, kind: str) -> bytes:
  lines = data.splitlines(keepends=True) or [b""]
  i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
  if kind == "drop":
    del lines[i]
  elif kind == "repeat":
    lines.insert(j, lines[i])
  else:
    lines[i], lines[j] = lines[j], lines[i]
  return b"".join(lines)


def joined(lines: Sequence[str], end: str = "\n") -> bytes:
  """The content of a file of these lines."""
  return "".join(line + end for line in lines).encode()


def written(folder: pathlib.Path, data: str | bytes, name: str = "file") -> pathlib.Path:
  """A file of this content."""
  path = folder / name
  path.write_bytes(data.encode() if isinstance(data, str) else data)
  return path


def check_refusals(read: Callable, path: pathlib.Path, broken: Mapping[str, tuple]) -> None:
  """Each (content, line or place, words) of `broken` is refused in these words, with its place."""
  for name, (data, place, words) in broken.items():
    written(path.parent, data, path.name)
    with pytest.raises(InputError) as error:
      read(path)
    where = f"{path}:{place}: " if isinstance(place, int) else f"{path}{place}"
    start, _, place = where.partition("*")  # a place behind `*` is anywhere in the message
    message = str(error.value)
    assert message.startswith(start) and place in message and words in message, name


def read_or_refused(read: Callable, path: pathlib.Path) -> object:
  """What a reader gives; None where it refuses the file by name."""
  try:
    return read(path)
  except InputError as error:
    assert str(error).startswith(str(path)), error
    return None


def has_place(error: Exception, path) -> bool:
  """Whether the message begins with the file and the line, or says that the file is empty."""
  place = str(error).removeprefix(str(path))
  number = place[1:].split(":")[0]
  return place.startswith(":") and number.isdecimal() or place.startswith(" is empty")


def files(folder: pathlib.Path) -> list[pathlib.Path]:
  """The files somewhere under `folder` that hold anything, in order."""
  return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def flip_bit(path: pathlib.Path, rng: random.Random) -> str:
  """Inverts one bit of a file, or of one of those somewhere under a folder; says which."""
  path = rng.choice(files(path)) if path.is_dir() else path
  data = bytearray(path.read_bytes())
  at, bit = rng.randrange(len(data)), rng.randrange(8)
  data[at] ^= 1 << bit
  path.write_bytes(data)
  return f"{path.name}: bit {bit} of byte {at}"
