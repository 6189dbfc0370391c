"""Damage to a file, drawn by hypothesis: what downloads, editors and disks do."""

from hypothesis import strategies as st

KINDS = ("cut", "delete", "insert", "overwrite", "drop", "repeat", "swap")
JUNK = (b"\n", b"\t", b"\r\n", b'"', b"\0", b"{", b"}", b",")


def damaged(draw, data: bytes) -> bytes:
  """`data` after one to three damages."""
  for _ in range(draw(st.integers(1, 3))):
    kind = draw(st.sampled_from(KINDS))
    at = draw(st.integers(0, len(data)))
    if kind == "cut":
      data = data[:at]
    elif kind == "delete":
      data = data[:at] + data[at + draw(st.integers(1, 40)) :]
    elif kind == "insert":
      junk = draw(st.one_of(st.binary(max_size=4), st.sampled_from(JUNK)))
      data = data[:at] + junk + data[at:]
    elif kind == "overwrite":
      junk = draw(st.binary(min_size=1, max_size=3))
      data = data[:at] + junk + data[at + len(junk) :]
    else:
      lines = data.splitlines(keepends=True) or [b""]
      i, j = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
      if kind == "drop":
        del lines[i]
      elif kind == "repeat":
        lines.insert(j, lines[i])
      else:
        lines[i], lines[j] = lines[j], lines[i]
      data = b"".join(lines)
  return data
