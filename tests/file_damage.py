"""Damage that a format is prone to, and what its reader may answer."""

import pathlib
import random
from collections.abc import Sequence

from hypothesis import strategies as st

from tests.data import damage


def damaged(draw, data: bytes, junk: Sequence[bytes]) -> bytes:
  """`data`, perhaps with one of `junk` in it, after the damage that befalls any file."""
  if draw(st.booleans()):
    at = draw(st.integers(0, len(data)))
    data = data[:at] + draw(st.sampled_from(junk)) + data[at:]
  return damage.damaged(draw, data)


def has_place(error: Exception, path) -> bool:
  """Whether the message begins with the file and the line, or says that the file is empty."""
  place = str(error).removeprefix(str(path))
  number = place[1:].split(":")[0]
  return place.startswith(":") and number.isdecimal() or place.startswith(" is empty")


def damage_one_byte(folder: pathlib.Path, random: random.Random) -> None:
  """Gives one byte, of one of the files somewhere under `folder`, another value."""
  file = random.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
  data = bytearray(file.read_bytes())
  data[random.randrange(len(data))] ^= random.randrange(1, 256)
  file.write_bytes(data)
