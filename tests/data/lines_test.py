import gzip
import os

import pytest

from as2jax.data.lines import Lines
from as2jax.runtime.errors import InputError
from tests.file_damage import written

TEXT = "first\r\nsecond \u00e9\nlast"
LINES = [(1, "first"), (2, "second \u00e9"), (3, "last")]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_gzip_is_unpacked_by_content(tmp_path, mark):
  data = mark + TEXT.encode()
  assert list(Lines(written(tmp_path, data))) == LINES
  assert list(Lines(written(tmp_path, gzip.compress(data)))) == LINES


def test_damaged_gzip(tmp_path):
  packed = gzip.compress(b"".join(b"%d line\n" % (i * i) for i in range(5000)))
  for cut in (len(packed) // 2, -4, 5):  # without the check sum all lines are there
    with pytest.raises(InputError, match=r"file:1: the gzip file is cut off"):
      list(Lines(written(tmp_path, packed[:cut])))
  with pytest.raises(InputError, match=r"file is empty"):
    list(Lines(written(tmp_path, gzip.compress(b""))))


@pytest.mark.parametrize("kind", ["a named pipe", "a directory", "a device"])
def test_what_is_no_file_is_not_opened(tmp_path, kind):
  path = tmp_path / "file"
  if kind == "a named pipe":
    os.mkfifo(path)
  elif kind == "a directory":
    path.mkdir()
  else:
    path.symlink_to("/dev/zero")
  with pytest.raises(InputError, match=f"^{path} is {kind}; give the path of a file"):
    list(Lines(path))
