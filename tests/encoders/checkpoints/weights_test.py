"""Which of a folder's weight files is read, under which names, and what is said of damage."""

import json
import os
import struct
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file
from weight_files import archive, checkpoint, plain

from as2jax.encoders.checkpoints.weights import format_of, read_tensors
from as2jax.runtime.errors import InputError

DATA = Path(os.environ.get("AS2JAX_DATA", "data"))


def arrays(value):
  return {"a.weight": np.full((2, 3), value, np.float32), "b.bias": np.float32([value, 0])}


def same(actual, expected):
  assert list(actual) == list(expected)
  for name, array in expected.items():
    np.testing.assert_array_equal(actual[name], array, strict=True)


def shard(folder, index, parts):
  """Writes an index and its files, each given as (bytes, names)."""
  places = {}
  for file, (data, names) in parts.items():
    (folder / file).write_bytes(data)
    places |= dict.fromkeys(names, file)
  (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": places}))


def split(value, write):
  whole = arrays(value)
  return {
    f"part-{i}": (write({name: array}), [name]) for i, (name, array) in enumerate(whole.items())
  }


def torch_bytes(tensors):
  return archive(*plain(tensors))


def test_the_formats_have_an_order(tmp_path):
  checkpoint(tmp_path / "bert_model.ckpt", arrays(5))
  expected = [("tensorflow", "bert_model.ckpt.index", 5)]
  read = []

  def look():
    tensors, source = read_tensors(tmp_path)
    read.append((format_of(tmp_path), Path(source).name, tensors["b.bias"][0]))
    same(tensors, arrays(read[-1][2]))

  look()
  shard(tmp_path, "pytorch_model.bin.index.json", split(4, torch_bytes))
  expected.append(("torch", "pytorch_model.bin.index.json", 4))
  look()
  (tmp_path / "pytorch_model.bin").write_bytes(torch_bytes(arrays(3)))
  expected.append(("torch", "pytorch_model.bin", 3))
  look()
  shard(tmp_path, "model.safetensors.index.json", split(2, save))
  expected.append(("safetensors", "model.safetensors.index.json", 2))
  look()
  save_file(arrays(1), tmp_path / "model.safetensors")
  expected.append(("safetensors", "model.safetensors", 1))
  look()
  assert read == expected


def write_safetensors(folder):
  save_file(arrays(1), folder / "model.safetensors")


def write_torch(folder):
  (folder / "pytorch_model.bin").write_bytes(torch_bytes(arrays(1)))


def write_sharded(folder):
  shard(folder, "pytorch_model.bin.index.json", split(1, torch_bytes))


def write_tensorflow(folder):
  checkpoint(folder / "model.ckpt-20", arrays(1))


writers = pytest.mark.parametrize(
  "write", [write_safetensors, write_torch, write_sharded, write_tensorflow]
)


@writers
def test_names_are_renamed_and_kept(tmp_path, write):
  write(tmp_path)
  rename = lambda name: name.removeprefix("a.")
  tensors, _ = read_tensors(tmp_path, rename)
  same(tensors, {"weight": arrays(1)["a.weight"], "b.bias": arrays(1)["b.bias"]})
  tensors, _ = read_tensors(tmp_path, rename, keep=["weight", "none"])
  same(tensors, {"weight": arrays(1)["a.weight"]})
  with pytest.raises(InputError, match="'a.weight' and 'b.bias' are both 'one' here"):
    read_tensors(tmp_path, lambda name: "one")


def test_a_shard_without_kept_tensors_is_not_opened(tmp_path):
  write_sharded(tmp_path)
  (tmp_path / "part-1").unlink()
  tensors, _ = read_tensors(tmp_path, keep={"a.weight"})
  same(tensors, {"a.weight": arrays(1)["a.weight"]})
  with pytest.raises(InputError, match="part-1: cannot be read"):
    read_tensors(tmp_path)


def test_a_name_is_in_one_shard(tmp_path):
  parts = split(1, torch_bytes)
  parts["part-1"] = (torch_bytes(arrays(2)), ["b.bias"])
  shard(tmp_path, "pytorch_model.bin.index.json", parts)
  with pytest.raises(InputError, match="part-1: the tensor 'a.weight' is in another file"):
    read_tensors(tmp_path)


@pytest.mark.parametrize(
  "text",
  [
    "",
    "[]",
    "{}",
    '{"weight_map": 3}',
    "[" * 100_000,
    "\xff",
    '{"weight_map": {"a": "../x.bin"}}',
    '{"weight_map": {"a": 3}}',
  ],
)
def test_a_broken_index_is_named(tmp_path, text):
  (tmp_path / "pytorch_model.bin.index.json").write_text(text, encoding="latin-1")
  with pytest.raises(InputError, match="bin.index.json: not an index of weight files"):
    read_tensors(tmp_path)


def test_the_optimizers_variables_are_left_out(tmp_path):
  noise = (
    "w/adam_m",
    "w/adam_v",
    "w/Adam",
    "w/Adam_1",
    "beta1_power",
    "global_step",
    "_CHECKPOINTABLE_OBJECT_GRAPH",
  )
  names = {name: np.zeros(2, np.float32) for name in ("w", "adam/kernel", *noise)}
  checkpoint(tmp_path / "bert_model.ckpt", names)
  assert sorted(read_tensors(tmp_path)[0]) == ["adam/kernel", "w"]


@pytest.mark.skipif(not (DATA / "bert_tiny").exists(), reason="AS2JAX_DATA has no bert_tiny")
def test_reads_googles_bert():
  tensors, source = read_tensors(DATA / "bert_tiny")
  assert len(tensors) == 46 and source.endswith("bert_model.ckpt.index")
  assert format_of(DATA / "bert_tiny") == "tensorflow"


def test_what_was_looked_for_is_listed(tmp_path):
  for read in (read_tensors, format_of):
    with pytest.raises(InputError) as caught:
      read(tmp_path)
    for name in (str(tmp_path), "model.safetensors", "model.safetensors.index.json",
                 "pytorch_model.bin", "pytorch_model.bin.index.json", "*.ckpt.index",
                 "model.ckpt-*.index"):  # fmt: skip
      assert name in str(caught.value)
  for name in ("model.ckpt-10.index", "model.ckpt-20.index"):
    (tmp_path / name).touch()
  with pytest.raises(InputError, match=r"several.*model.ckpt-10.index, model.ckpt-20.index\)"):
    read_tensors(tmp_path)


def test_dtypes_are_the_files_but_bfloat16(tmp_path):
  half = np.float32([[1.5, -2.25], [3, 1e-3]]).astype(ml_dtypes.bfloat16)
  expected = {"f": np.float16([1, 2]), "i": np.arange(3), "w": half}
  save_file(expected, tmp_path / "model.safetensors")
  same(read_tensors(tmp_path)[0], expected | {"w": half.astype(np.float32)})


def safetensors_bytes(header, data):
  text = json.dumps(header).encode()
  return struct.pack("<Q", len(text)) + text + data


def test_a_dtype_that_numpy_lacks_is_named(tmp_path):
  header = {"w": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}
  (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(header, b"12"))
  with pytest.raises(InputError, match="model.safetensors: the tensor 'w' is F8_E4M3"):
    read_tensors(tmp_path)


FLIPS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=3)


@given(flips=FLIPS, cut=st.integers(0, 1 << 20))
def test_damaged_safetensors_give_no_more_than_they_hold_or_an_error(tmp_path, flips, cut):
  # safetensors has no checksum: a changed number, name or type can go unseen, a cut cannot.
  whole = save(arrays(1))
  data = bytearray(whole)
  for place, bits in flips:
    data[place % len(data)] ^= bits
  (tmp_path / "model.safetensors").write_bytes(data)
  try:
    tensors, _ = read_tensors(tmp_path)
    assert sum(array.nbytes for array in tensors.values()) <= 2 * len(whole)
  except InputError as error:
    assert "model.safetensors: " in str(error)
  (tmp_path / "model.safetensors").write_bytes(whole[: cut % len(whole)])
  with pytest.raises(InputError, match="not a whole safetensors file|cannot be read"):
    read_tensors(tmp_path)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@writers
def test_a_number_that_is_not_finite_is_named(tmp_path, write, number, monkeypatch):
  whole = arrays(1)
  whole["a.weight"][1, 2] = number
  monkeypatch.setattr(sys.modules[__name__], "arrays", lambda value: whole)
  write(tmp_path)
  with pytest.raises(
    InputError,
    match=rf"the tensor 'a.weight' holds 1 of 6 .*{number}, at "
    r"\[1, 2\]",
  ) as caught:
    read_tensors(tmp_path)
  file = {
    write_sharded: "part-0",
    write_tensorflow: "model.ckpt-20.index",
    write_torch: "pytorch_model.bin",
    write_safetensors: "model.safetensors",
  }[write]
  assert str(caught.value).startswith(f"{tmp_path / file}: ")
  assert list(read_tensors(tmp_path, keep=["b.bias"])[0]) == ["b.bias"]


def test_a_double_must_fit_into_a_float(tmp_path):
  save_file({"w": np.float64([1, 1e300])}, tmp_path / "model.safetensors")
  with pytest.raises(InputError, match=r"'w' holds 1 of 2 .*finite in float32.*1e\+300, at \[1\]"):
    read_tensors(tmp_path)


@pytest.mark.parametrize(
  "name", ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "a.ckpt.index"]
)
@pytest.mark.parametrize("kind", ["a named pipe", "a directory", "a device"])
def test_what_is_no_file_is_not_opened(tmp_path, name, kind):
  if kind == "a named pipe":
    os.mkfifo(tmp_path / name)
  elif kind == "a directory":
    (tmp_path / name).mkdir()
  else:
    (tmp_path / name).symlink_to("/dev/zero")
  with pytest.raises(InputError, match=f"^{tmp_path / name} is {kind}"):
    read_tensors(tmp_path)
