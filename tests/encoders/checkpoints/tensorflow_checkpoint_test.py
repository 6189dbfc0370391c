"""TensorFlow checkpoints: Google's own tiny ones, and others made by hand."""

import os
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weight_files import checkpoint, entry, record, table

from as2jax.encoders.checkpoints import crc32c, tensorflow_checkpoint
from as2jax.runtime.errors import InputError

DATA = Path(os.environ.get("AS2JAX_DATA", "data"))
has_data = pytest.mark.skipif(
  not (DATA / "bert_tiny").exists() or not (DATA / "xlnet_tiny").exists(),
  reason="AS2JAX_DATA has no bert_tiny or xlnet_tiny",
)
RNG = np.random.default_rng(0)
ARRAYS = {
  "bert/embeddings/word": RNG.normal(size=(7, 4)).astype(np.float32),
  "bert/encoder/layer_0/bias": RNG.normal(size=4).astype(np.float16),
  "bert/encoder/layer_0/kernel": RNG.normal(size=(4, 4)),
  "bert/encoder/layer_1/bias": np.arange(4, dtype=np.int32),
  "bert/encoder/layer_1/kernel": RNG.normal(size=(4, 200)).astype(np.float32),
  "empty": np.zeros((0, 3), np.float32),
  "global_step": np.array(20),
}


def same(actual, expected):
  assert list(actual) == list(expected)
  for name, array in expected.items():
    np.testing.assert_array_equal(actual[name], array, strict=True)


@has_data
def test_reads_googles_bert():
  prefix = DATA / "bert_tiny" / "bert_model.ckpt"
  actual = tensorflow_checkpoint.read(prefix)
  assert len(actual) == 3 * 46 + 1 and actual["global_step"] == 20
  assert actual["bert/embeddings/word_embeddings"].shape == (15, 4)
  assert actual["bert/encoder/layer_1/intermediate/dense/kernel"].shape == (4, 16)
  # The tensors fill the data file, whose places a hexadecimal dump of the index shows.
  raw = prefix.with_name("bert_model.ckpt.data-00000-of-00001").read_bytes()
  assert sum(array.nbytes for array in actual.values()) == len(raw)
  beta = np.frombuffer(raw, np.float32, 4, offset=0)
  gamma = np.frombuffer(raw, np.float32, 4, offset=48)
  np.testing.assert_array_equal(actual["bert/embeddings/LayerNorm/beta"], beta)
  np.testing.assert_array_equal(actual["bert/embeddings/LayerNorm/gamma"], gamma)


@has_data
@pytest.mark.parametrize("folder, count, biases", [("pre", 33, (2, 2, 3)), ("empty", 31, (2, 3))])
def test_reads_googles_xlnet(folder, count, biases):
  prefix = DATA / "xlnet_tiny" / f"test_checkpoint_{folder}" / "xlnet_model.ckpt"
  actual = tensorflow_checkpoint.read(prefix)
  assert len(actual) == count and {array.dtype for array in actual.values()} == {np.dtype("f4")}
  assert actual["model/transformer/word_embedding/lookup_table"].shape == (31, 6)
  assert actual["model/transformer/r_w_bias"].shape == biases
  assert all(np.isfinite(array).all() for array in actual.values())
  kept = "model/transformer/r_w_bias"
  same(tensorflow_checkpoint.read(prefix, {kept}), {kept: actual[kept]})


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_reads_a_checkpoint_made_by_hand(tmp_path, shards):
  prefix = checkpoint(tmp_path / "model.ckpt-20", ARRAYS, shards)
  same(tensorflow_checkpoint.read(prefix), ARRAYS)
  kept = {"global_step": ARRAYS["global_step"]}
  same(tensorflow_checkpoint.read(str(prefix), kept), kept)


def test_bfloat16_becomes_float32(tmp_path):
  half = RNG.normal(size=(3, 5)).astype(ml_dtypes.bfloat16)
  actual = tensorflow_checkpoint.read(checkpoint(tmp_path / "x", {"w": half}))
  same(actual, {"w": half.astype(np.float32)})


def test_what_is_not_kept_is_not_loaded(tmp_path):
  arrays = {"big": np.zeros(4_000_000, np.float32), "small": np.ones(3, np.float32)}
  prefix = checkpoint(tmp_path / "x", arrays, 1)
  tensorflow_checkpoint.read(checkpoint(tmp_path / "y", arrays, 1), {"small"})
  tracemalloc.start()
  same(tensorflow_checkpoint.read(prefix, {"small"}), {"small": arrays["small"]})
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < 2e6


def with_entry(value):
  return lambda pairs: [*pairs, (b"x", value)]


RAW_CRC = crc32c.masked(bytes(16))


@pytest.mark.parametrize(
  "value, message",
  [
    (entry(1, (4,), 0, 0, 16, RAW_CRC, record(7, record(1, b"\x10\x04"))), "'x' is a partitioned"),
    (entry(7, (4,), 0, 0, 16, RAW_CRC), "'x' is string; only float16"),
    (entry(77, (4,), 0, 0, 16, RAW_CRC), "'x' is of type number 77"),
    (entry(1, (5,), 0, 0, 16, RAW_CRC), r"'x' has 16 bytes, but the shape \[5\]"),
    (entry(1, (2**62, 2**62), 0, 0, 16, RAW_CRC), "'x' has 16 bytes"),
    (entry(1, (0, 2**62), 0, 0, 0, RAW_CRC), "'x' has 0 bytes"),
    (entry(1, (2**62,), 0, 0, 2**64, RAW_CRC), "bytes|no end"),
    (entry(1, (2**38,), 0, 0, 2**40, RAW_CRC), "data-00000-of-00001: truncated: 'x' reaches"),
    (entry(1, (2,), 0, 12, 8, RAW_CRC), "data-00000-of-00001: truncated: 'x' reaches"),
    (entry(1, (4,), 0, 2**40, 16, RAW_CRC), "data-00000-of-00001: truncated: 'x' reaches"),
    (entry(1, (4,), 0, 0, 16, RAW_CRC ^ 1), "data-00000-of-00001: the checksum of 'x'"),
    (entry(1, (4,), 3, 0, 16, RAW_CRC), "'x' lies in data file 3 of 1"),
    (b"\x08", "index: damaged"),
    (b"\x0a\x05a", "cut off"),
    (b"\x0a\x01a", "text for a number"),
    (b"\x10\x01", "a number for a record"),
    (b"\x0b", "entry of it is damaged"),
    (b"\x80" * 11, "no end"),
    (record(2, b"\x18\x01"), "no shape"),
  ],
)
def test_an_entry_that_cannot_be_read_is_named(tmp_path, value, message):
  arrays = {"w": np.zeros(4, np.float32)}
  prefix = checkpoint(tmp_path / "m.ckpt", arrays, 1, with_entry(value))
  with pytest.raises(InputError, match=f"m.ckpt.*({message})"):
    tensorflow_checkpoint.read(prefix, {"x"})


def test_tensors_that_overlap_do_not_add_up(tmp_path):
  change = with_entry(entry(1, (4,), 0, 0, 16, RAW_CRC))
  prefix = checkpoint(tmp_path / "m.ckpt", {"w": np.zeros(4, np.float32)}, 1, change)
  with pytest.raises(InputError, match="16 bytes, fewer than its tensors take together"):
    tensorflow_checkpoint.read(prefix)


def test_what_is_not_kept_may_be_of_any_kind(tmp_path):
  arrays = {"w": np.zeros(4, np.float32)}
  graph = (b"_CHECKPOINTABLE_OBJECT_GRAPH", entry(7, (), 0, 0, 16, RAW_CRC))
  slices = [(b"\0\1x\0\1", entry(1, (4,), 0, 0, 16, RAW_CRC))]
  change = lambda pairs: [pairs[0], *slices, graph, *pairs[1:]]
  same(tensorflow_checkpoint.read(checkpoint(tmp_path / "x", arrays, 1, change)), arrays)
  strange = with_entry(entry(7, (), 0, 0, 16, RAW_CRC))
  same(tensorflow_checkpoint.read(checkpoint(tmp_path / "x", arrays, 1, strange), {"w"}), arrays)


@pytest.mark.parametrize(
  "index, message",
  [
    (b"", "not the index of a TensorFlow checkpoint"),
    (b"version https://git-lfs.github.com/spec/v1\n", "git-LFS pointer"),
    (b"x" * 100, "not the index of a TensorFlow checkpoint"),
    (table([(b"", b"\x08\x01")], compression=1), "compressed by snappy"),
    (table([(b"", b"\x08\x01")], compression=4), "compressed in way 4"),
    (table([(b"", b"\x08\x01\x10\x01")]), "big-endian"),
    (table([(b"", b"\x08\x00")]), "speaks of 0 data files"),
    (table([(b"a", b"\x08\x01")]), "no header"),
    (table([(b"", b"\x08\x01"), (b"b", b""), (b"a", b"")]), "not in order"),
    (table([(b"", b"\x08\x01"), (b"k" * 5000, b"")]), "a key of its table is damaged"),
    (table([(b"", b"\x08\x01"), (b"\xff", b"")]), "damaged"),
    (table([]), "empty"),
  ],
)
def test_an_index_that_cannot_be_read_is_named(tmp_path, index, message):
  (tmp_path / "m.ckpt.index").write_bytes(index)
  with pytest.raises(InputError, match=f"m.ckpt.index: .*{message}"):
    tensorflow_checkpoint.read(tmp_path / "m.ckpt")


def test_missing_and_truncated_data_files_are_named(tmp_path):
  prefix = checkpoint(tmp_path / "m.ckpt", ARRAYS)
  data = tmp_path / "m.ckpt.data-00001-of-00002"
  raw = data.read_bytes()
  data.write_bytes(raw[:-1])
  with pytest.raises(InputError, match="00001-of-00002: truncated"):
    tensorflow_checkpoint.read(prefix)
  data.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
  with pytest.raises(InputError, match="00001-of-00002: a git-LFS pointer"):
    tensorflow_checkpoint.read(prefix)
  data.unlink()
  with pytest.raises(InputError, match="00001-of-00002: cannot be read"):
    tensorflow_checkpoint.read(prefix)
  with pytest.raises(InputError, match="none.index: cannot be read"):
    tensorflow_checkpoint.read(tmp_path / "none")


FLIPS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=3)


@given(flips=FLIPS, in_index=st.booleans(), cut=st.integers(0, 1 << 20))
def test_damage_gives_the_right_tensors_or_an_error(tmp_path, flips, in_index, cut):
  prefix = checkpoint(tmp_path / "m.ckpt", ARRAYS, 1)
  file = tmp_path / ("m.ckpt.index" if in_index else "m.ckpt.data-00000-of-00001")
  whole = file.read_bytes()
  data = bytearray(whole)
  for place, bits in flips:
    data[place % len(data)] ^= bits
  for damaged in (bytes(data), whole[: cut % len(whole)]):
    file.write_bytes(damaged)
    try:
      same(tensorflow_checkpoint.read(prefix), ARRAYS)
    except InputError as error:
      assert "m.ckpt." in str(error)
