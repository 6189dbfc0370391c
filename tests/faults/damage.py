"""Damage to files: what disks, copies, editors and downloads do, drawn by a seed."""

import pathlib
import random

KINDS = ("cut", "delete", "insert", "overwrite", "flip", "drop", "repeat", "swap")
JUNK = (
  b"\n", b"\t", b"\r\n", b'"', b"\0", b"{", b"}", b",", b"[" * 5000, b'{"a":' * 5000, b"-", b"1e999",
  b"99999999999", b"null", b"\xff", b"\xed\xa0\x80", b"<", b"&", b"</", b"NaN",
)  # fmt: skip


def flip_bit(path: pathlib.Path, rng: random.Random) -> str:
  """Inverts one bit of a file; says which."""
  data = bytearray(path.read_bytes())
  at, bit = rng.randrange(len(data)), rng.randrange(8)
  data[at] ^= 1 << bit
  path.write_bytes(data)
  return f"{path.name}: bit {bit} of byte {at}"


def files(folder: pathlib.Path) -> list[pathlib.Path]:
  """The files somewhere under `folder` that hold anything, in order."""
  return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def damaged(data: bytes, rng: random.Random) -> bytes:
  """`data` after one to three damages."""
  for _ in range(rng.randint(1, 3)):
    kind, at = rng.choice(KINDS), rng.randint(0, len(data))
    if kind == "cut":
      data = data[:at]
    elif kind == "delete":
      data = data[:at] + data[at + rng.randint(1, 40) :]
    elif kind == "insert":
      junk = rng.choice((rng.randbytes(rng.randint(1, 4)), rng.choice(JUNK)))
      data = data[:at] + junk + data[at:]
    elif kind == "overwrite":
      junk = rng.choice((rng.randbytes(rng.randint(1, 3)), rng.choice(JUNK)))
      data = data[:at] + junk + data[at + len(junk) :]
    elif kind == "flip" and at < len(data):
      data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    else:
      lines = data.splitlines(keepends=True) or [b""]
      i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
      if kind == "drop":
        del lines[i]
      elif kind == "repeat":
        lines.insert(j, lines[i])
      else:
        lines[i], lines[j] = lines[j], lines[i]
      data = b"".join(lines)
  return data
