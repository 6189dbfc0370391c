"""Reading and writing files of word vectors: formats, damage, policies."""

import functools
import gzip
import json
import tracemalloc
import zipfile

import file_damage
import numpy as np
import pytest
from file_damage import joined
from hypothesis import given
from hypothesis import strategies as st
from tiny import real_data

from as2jax.encoders import word_vectors
from as2jax.encoders.word_vectors import write
from as2jax.runtime.errors import InputError

ROWS = ["the 0.5 -1 2e-3", "ice 1 2 3", "Caves 4 5 6", "caf\u00e9 7 8 9", ". . . 10 11 12"]
VALUES = {
  "the": [0.5, -1, 2e-3],
  "ice": [1, 2, 3],
  "Caves": [4, 5, 6],
  "caf\u00e9": [7, 8, 9],
  ". . .": [10, 11, 12],
}


def many(n=200):
  """Rows among which a single malformed one is tolerated."""
  return [f"w{i} {i} 0 0.5" for i in range(n)]


file = functools.partial(file_damage.written, name="vectors.txt")


def read(path, vocabulary=None):
  return word_vectors.read(path, vocabulary)


def as_dict(vectors):
  return dict(zip(vectors.words, vectors.table.tolist(), strict=True))


def assert_whole(vectors):
  assert vectors.table.dtype == np.float32
  assert list(vectors.words) == list(VALUES)
  np.testing.assert_array_equal(vectors.table, np.array(list(VALUES.values()), np.float32))


@pytest.mark.parametrize(
  "data",
  [
    joined(ROWS),
    joined(ROWS)[:-1],
    joined(ROWS, end=" \r\n"),  # the space is fastText's
    b"\xef\xbb\xbf" + joined(ROWS) + b"\n\n",
    b"5 3 \r\n" + joined(ROWS),
  ],
)
def test_formats(tmp_path, data):
  vectors = read(file(tmp_path, data))
  assert_whole(vectors)
  counts = {"rows": 5, "kept": 5, "duplicates": 0, "malformed": 0}
  assert vectors.statistics == {"file": "vectors.txt", "dimension": 3} | counts


def test_packed(tmp_path):
  assert_whole(read(file(tmp_path, gzip.compress(joined(ROWS)), name="vectors.txt.gz")))
  archive = tmp_path / "glove.zip"
  with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
    out.writestr("folder/a.txt", joined(ROWS))
  assert_whole(read(archive))
  with zipfile.ZipFile(archive, "a") as out:
    out.writestr("b.txt", "x 1 2\n")
  assert_whole(read(f"{archive}:folder/a.txt"))
  assert read(f"{archive}:b.txt").words == ("x",)
  with pytest.raises(InputError, match=r"give one of its members, as .*glove.zip:NAME"):
    read(archive)
  with pytest.raises(InputError, match="there are folder/a.txt, b.txt"):
    read(f"{archive}:c.txt")


def test_only_the_vocabulary_is_kept(tmp_path):
  path = file(tmp_path, joined(ROWS))
  assert as_dict(read(path, {"ice", "Caves", "absent"})) == {
    "ice": VALUES["ice"],
    "Caves": VALUES["Caves"],
  }
  lower = read(path, ["ICE", "caves", "THE"])
  assert lower.words == ("the", "ice")
  with pytest.raises(InputError, match="none of the 1 words asked for"):
    read(path, {"absent"})


MALFORMED = (
  b"w 1 2",
  b"w 0.1 2 0.3 4",
  b"w 1 2 x",
  b"w 1  2",
  b"w 1 1e39 2",
  b" 1 2 3",
  b"w\xff 1 2 3",
)


@pytest.mark.parametrize("row", MALFORMED)
def test_malformed_rows_are_counted(tmp_path, row):
  rows = [line.encode() for line in many()]
  vectors = read(file(tmp_path, b"\n".join([*rows[:7], row, *rows[7:]]) + b"\n"))
  assert vectors.words == tuple(f"w{i}" for i in range(200))
  assert vectors.table[:, 0].tolist() == list(range(200))
  assert vectors.statistics["malformed"] == 1


@pytest.mark.parametrize(
  ("data", "pattern"),
  [
    (b"", ":1: .* is no row of word vectors"),
    (b"\x00\x01 " * 99, "a .bin as text"),
    (b"x 2 3\na 1 2 3\nb 2 3 4\n", "2 of 3 rows are malformed.*row 2: not a word and 2 numbers"),
    (b"5 3\n", "0 of 0 rows are malformed, and its header says 5"),
    (joined([*many(198), "a", "b 1"]) + joined(["c"]), "3 of 201 rows are malformed"),
    (joined(["a b c d", *["some words of a text"] * 50]), "51 of 51 rows.*could not convert"),
    (gzip.compress(joined(many()))[:-20], "cut off or damaged"),
    (b"PK\x03\x04" + b"x" * 50, "cut off or damaged"),
  ],
)
def test_unfit_files(tmp_path, data, pattern):
  with pytest.raises(InputError, match=f"vectors.txt.*({pattern})"):
    read(file(tmp_path, data))


@given(st.data())
def test_damage_never_changes_a_vector_silently(tmp_path, data):
  lines = [f"{line}\n".encode() for line in ("100 3", *many(100))]
  at, kind = (
    data.draw(st.integers(0, 100)),
    data.draw(st.sampled_from(["cut off", "lost", "added"])),
  )
  inside = data.draw(st.integers(0, len(lines[at]) - 1))
  begin, end = lines[at][:inside], lines[at][inside:]
  if kind == "cut off":
    lines[at:] = [begin]
  elif kind == "lost":
    del lines[at]
  else:
    lines[at] = begin + data.draw(st.binary(min_size=1, max_size=4)) + end
  path = file(tmp_path, b"".join(lines))
  try:
    vectors = read(path)
  except InputError as error:
    assert str(path) in str(error)
    return
  statistics, actual = vectors.statistics, as_dict(vectors)
  assert kind != "cut off" or at >= 98
  for word in many(100):
    word, *numbers = word.split()
    if word != f"w{at - 1}":
      assert actual.get(word) == [float(x) for x in numbers] or statistics["duplicates"]
  lost = statistics["malformed"] or statistics["duplicates"] or statistics["rows"] != 100
  assert len(actual) == 100 or lost


def test_write_and_read_are_inverse(tmp_path):
  table = np.random.default_rng(0).normal(0, 1, (50, 7)).astype(np.float32)
  table[0, :3] = 1e-38, 3.4e38, np.float32(1) / 3
  words = tuple(f"w\u00e9{i}" for i in range(50))
  write(tmp_path / "new" / "v.txt", words, table)
  actual = read(tmp_path / "new" / "v.txt")
  assert actual.words == words
  np.testing.assert_array_equal(actual.table, table)
  with pytest.raises(InputError, match="'a b' has white space"):
    write(tmp_path / "v.txt", ["a b"], table[:1])
  with pytest.raises(ValueError):
    write(tmp_path / "v.txt", ["a"], table)  # fails halfway
  assert [path.name for path in tmp_path.iterdir()] == ["new"]
  (tmp_path / "taken").write_text("")
  with pytest.raises(InputError, match="cannot be written"):
    write(tmp_path / "taken" / "v.txt", ["a"], table[:1])


def test_a_large_file_is_streamed(tmp_path):
  numbers = " ".join(["0.123456"] * 100)
  path = file(tmp_path, b"".join(f"w{i} {numbers}\n".encode() for i in range(20_000)))
  assert path.stat().st_size > 18e6
  tracemalloc.start()
  vectors = read(path, {"w3", "w19999"})
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert vectors.words == ("w3", "w19999") and peak < 1e6


def test_what_vectors_were_trained_on_is_read_with_them(tmp_path):
  path = file(tmp_path, joined(ROWS))
  told = {"dataset": "sample", "bytes": path.stat().st_size}
  (tmp_path / "vectors.txt.json").write_text(json.dumps(told))
  assert read(path).statistics["trained_on"] == {"dataset": "sample"}
  (tmp_path / "vectors.txt.json").write_text(json.dumps(told | {"bytes": 1}))
  with pytest.raises(InputError, match="vectors.txt.json does not describe"):
    read(path)


def test_real_glove():
  vectors = read(real_data("glove", "glove.6B.50d.first2446.txt"))
  assert vectors.table.shape == (2446, 50) and vectors.words[0] == "the"
  np.testing.assert_allclose(vectors.table[0, :3], [0.418, 0.24968, -0.41242], rtol=1e-6)
  assert vectors.statistics["malformed"] == vectors.statistics["duplicates"] == 0
  some = read(real_data("glove", "glove.6B.50d.first2446.txt"), {"handed", "the"})
  np.testing.assert_array_equal(some.table, vectors.table[[0, -1]])
  packed = read(real_data("glove", "glove.6B.300d.sample.txt.gz"))
  assert packed.table.shape == (100, 300) and packed.words[:3] == ("the", ",", ".")
