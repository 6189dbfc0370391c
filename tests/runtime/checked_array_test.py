"""Arrays of a cache that are verified where they are read."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from as2jax.runtime import array_folder, checked_array
from as2jax.runtime.checksums import BLOCK
from as2jax.runtime.errors import InputError

VALUES = np.random.default_rng(0).integers(-9, 9, (40_000, 3), np.int32)  # 480 kB: 8 blocks


def write(folder, values=VALUES):
  folder.mkdir()
  arrays = {"values": (values.shape, values.dtype), "whole": ((3,), np.int8)}
  with array_folder.Writer(folder, arrays) as writer:
    writer.write("values", values)
    writer.write("whole", np.arange(3))
    writer.finish()
  return folder


def opened(folder):
  arrays = array_folder.open_arrays(folder, by_block=["values"])
  return None if arrays is None else arrays[0]["values"]


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch):
  monkeypatch.setattr(array_folder, "LARGE", 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(array_folder, "LARGE", 0)
    return write(tmp_path_factory.mktemp("arrays") / "cache")


@pytest.fixture
def blocks_read(monkeypatch):
  read, intact = [], checked_array._intact
  monkeypatch.setattr(
    checked_array,
    "_intact",
    lambda path, sums, blocks: read.extend(blocks) or intact(path, sums, blocks),
  )
  return read


def flip(folder, byte):
  content = bytearray((folder / "values.npy").read_bytes())
  content[byte] ^= 4
  (folder / "values.npy").write_bytes(content)


def test_only_the_blocks_of_the_rows_are_read(folder, blocks_read):
  values = opened(folder)
  assert blocks_read == [0] and values.shape == (40_000, 3) and len(values) == 40_000
  np.testing.assert_array_equal(values[20_000:20_010], VALUES[20_000:20_010])
  assert blocks_read == [0, 3]
  np.testing.assert_array_equal(values[np.array([-1, 3, 20_005])], VALUES[[-1, 3, 20_005]])
  assert blocks_read == [0, 3, 0, 7]  # block 0 again: it holds the header, too
  assert values[7:7].shape == (0, 3) and len(blocks_read) == 4
  assert (values == VALUES).all()
  assert sorted(blocks_read) == [0, 0, 1, 2, 3, 4, 5, 6, 7]


indices = st.one_of(
  st.slices(40_000),
  st.integers(-40_000, 39_999),
  st.lists(st.integers(-40_000, 39_999), max_size=5).map(lambda x: np.array(x, np.int64)),
  st.just(np.arange(40_000) % 7_919 == 5),
  st.just((slice(3, 5), 1)),
  st.booleans(),
)


@hypothesis.given(indices)
def test_numpy_sees_an_array(folder, index):
  np.testing.assert_array_equal(opened(folder)[index], VALUES[index])


@pytest.mark.parametrize("width", [1, 50_000])
def test_rows_may_be_short_or_longer_than_a_block(tmp_path, width):
  values = np.arange(6 * width, dtype=np.float32).reshape(6, width)
  folder = write(tmp_path / "cache", values)
  np.testing.assert_array_equal(opened(folder)[np.array([4, 1], np.int8)], values[[4, 1]])
  np.testing.assert_array_equal(opened(folder)[np.int64(-2)], values[-2])
  if width > 1:
    flip(folder, 128 + 4 * (3 * width + width // 2))
    there = opened(folder)
    np.testing.assert_array_equal(there[np.array([1, 5])], values[[1, 5]])
    with pytest.raises(InputError, match="not what was written"):
      there[np.array([3])]


def test_what_is_done_with_arrays_is_done_with_it(folder):
  values = opened(folder)
  assert values.sum() == VALUES.sum() and values.max() == VALUES.max()
  np.testing.assert_array_equal(np.repeat(values, 2, 0), np.repeat(VALUES, 2, 0))
  np.testing.assert_array_equal(2 * values - 1, 2 * VALUES - 1)
  np.testing.assert_array_equal(VALUES[:, 0][values[:9, 0]], VALUES[:, 0][VALUES[:9, 0]])
  assert np.add.reduce(values[:5, 2]) == VALUES[:5, 2].sum()
  with pytest.raises(IndexError, match="out of bounds"):
    values[np.array([40_000])]
  with pytest.raises(AttributeError):
    values._nothing


def test_a_damaged_block_ends_what_reads_it_and_the_cache(tmp_path, blocks_read):
  folder = write(tmp_path / "cache")
  flip(folder, 5 * BLOCK + 17)
  values = opened(folder)
  np.testing.assert_array_equal(values[:20_000], VALUES[:20_000])
  with pytest.raises(InputError, match=r"values\.npy: bytes 327,680 to 393,215 .*the same command"):
    values[np.array([30_000])]
  assert opened(folder) is None, "it is made anew"


@pytest.mark.parametrize("byte", [3, 90, BLOCK - 1])
def test_a_damaged_first_block_is_no_cache(tmp_path, byte, caplog):
  folder = write(tmp_path / "cache")
  flip(folder, byte)
  assert opened(folder) is None
  assert "values.npy is not what was written" in caplog.text


def test_small_or_unnamed_arrays_are_verified_at_once(tmp_path, monkeypatch):
  folder = write(tmp_path / "cache")
  flip(folder, 5 * BLOCK)
  assert array_folder.open_arrays(folder) is None
  monkeypatch.setattr(array_folder, "LARGE", 2**30)
  other = write(tmp_path / "other")
  assert isinstance(opened(other), np.ndarray)
  flip(other, 5 * BLOCK)
  assert opened(other) is None


def test_a_cut_file_is_no_cache(tmp_path):
  folder = write(tmp_path / "cache")
  content = (folder / "values.npy").read_bytes()
  (folder / "values.npy").write_bytes(content[:-1])
  assert opened(folder) is None
