"""Which of a folder's weight files is read, under which names, and what is said of the others."""

import json
import os
import sys

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from as2jax.encoders import weights
from as2jax.encoders.weights import read_tensors
from as2jax.runtime.errors import InputError


def arrays(value=1.0):
  return {"a.weight": np.full((2, 3), value, np.float32), "b.bias": np.float32([value, 0])}


def same(actual, expected):
  assert list(actual) == list(expected)
  for name, array in expected.items():
    np.testing.assert_array_equal(actual[name], array, strict=True)


def pickled(content, path):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  tensors = lambda x: torch.tensor(x) if isinstance(x, np.ndarray) else x
  torch.save({name: tensors(x) for name, x in content.items()}, path)


def shard(folder, index, write, tensors=None):
  """Writes a file a tensor, and their index."""
  places = {}
  for number, (name, array) in enumerate((tensors or arrays()).items()):
    places[name] = f"part-{number}{'.safetensors' if 'safetensors' in index else '.bin'}"
    write({name: array}, folder / places[name])
  (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": places}))


def test_the_formats_have_an_order(tmp_path):
  forms = (
    ("pytorch_model.bin.index.json", pickled),
    ("pytorch_model.bin", pickled),
    ("model.safetensors.index.json", save_file),
    ("model.safetensors", save_file),
  )
  for value, (name, write) in enumerate(forms):
    if name.endswith("json"):
      shard(tmp_path, name, write, arrays(value))
    else:
      write(arrays(value), tmp_path / name)
    actual, source = read_tensors(tmp_path)
    same(actual, arrays(value))
    assert source == str(tmp_path / name)


@pytest.mark.parametrize("write", [save_file, pickled])
def test_names_are_renamed_and_only_kept_tensors_loaded(tmp_path, write):
  index = "model.safetensors" if write is save_file else "pytorch_model.bin"
  shard(tmp_path, f"{index}.index.json", write)
  rename = lambda name: name.removeprefix("a.")
  same(
    read_tensors(tmp_path, rename)[0],
    {"weight": arrays()["a.weight"], **{k: v for k, v in arrays().items() if k == "b.bias"}},
  )
  next(tmp_path.glob("part-1*")).unlink()  # of no tensor that is kept
  same(read_tensors(tmp_path, rename, keep=["weight", "none"])[0], {"weight": arrays()["a.weight"]})
  with pytest.raises(InputError, match="part-1.*cannot be read"):
    read_tensors(tmp_path)


def test_half_precision_is_read_from_safetensors_and_pickles(tmp_path):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  half = np.float32([[1.5, -2.25], [3, 1e-3]]).astype(ml_dtypes.bfloat16)
  expected = {"f": np.float16([1, 2]), "i": np.arange(3), "w": half.astype(np.float32)}
  save_file({**expected, "w": half}, tmp_path / "model.safetensors")
  same(read_tensors(tmp_path)[0], expected)
  tensors = {name: torch.tensor(x) for name, x in expected.items()}
  tensors["w"] = tensors["w"].bfloat16()
  for zipped in (True, False):  # today's form, and that before torch 1.6
    path = tmp_path / "of_torch.bin"
    torch.save(tensors, path, _use_new_zipfile_serialization=zipped)
    same(weights.read_file(path), expected)


class Hostile:
  def __reduce__(self):
    return os.system, ("touch hostile",)


def text(name, content):
  return lambda folder: (folder / name).write_bytes(
    content if isinstance(content, bytes) else content.encode()
  )


def promised(there):
  def damage(folder):
    shard(folder, INDEX, save_file)
    save_file(there, folder / "part-1.safetensors")

  return damage


INDEX = "model.safetensors.index.json"
REFUSED = [
  (lambda folder: None, "no weights here; put one of model.safetensors, .*pytorch_model.bin"),
  (text("bert_model.ckpt.index", "x"), "TensorFlow checkpoints are not read; convert it"),
  (text("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
   "model.safetensors: not a whole file of tensors alone"),
  (lambda f: save_file({"w": np.float64([1, 1e300])}, f / "model.safetensors"),
   r"'w' holds 1 of 2 .*finite in float32.*1e\+300, at \[1\]"),
  (lambda f: pickled({"w": np.float32([np.inf])}, f / "pytorch_model.bin"),
   r"pytorch_model.bin: .*'w' holds 1 of 1 .*inf, at \[0\]"),
  (text("pytorch_model.bin", b"x"),
   "pytorch_model.bin: not a whole file of tensors alone"),
  (lambda f: pickled({"state": {}}, f / "pytorch_model.bin"),
   "pytorch_model.bin: not a whole file of tensors alone"),
  (lambda f: pickled({"a": Hostile()}, f / "pytorch_model.bin"),
   "pytorch_model.bin: not a whole file of tensors alone"),
  (promised({}), "the tensor 'b.bias' is not in part-1"),
  (promised({"c": np.zeros(1)}), "the tensor 'c' of part-1.* has no place in it"),
  (text(INDEX, "[]"), "holds no JSON object; get it again: its `weight_map`"),
  (text(INDEX, '{"weight_map": []}'), "not an index of weight files"),
  (text(INDEX, '{"weight_map": {"a": "../x.bin"}}'), "cannot be read"),
  (lambda f: (f / "model.safetensors").mkdir(), "is a directory"),
  (lambda f: os.mkfifo(f / "pytorch_model.bin"), "is a named pipe"),
  (lambda f: (f / INDEX).symlink_to("/dev/zero"), "is a device"),
]  # fmt: skip


@pytest.mark.parametrize("write, message", REFUSED)
def test_what_cannot_be_read_is_named(tmp_path, monkeypatch, write, message):
  monkeypatch.chdir(tmp_path)
  write(tmp_path)
  with pytest.raises(InputError, match=message) as caught:
    read_tensors(tmp_path)
  assert str(caught.value).startswith(str(tmp_path)) and "\n" not in str(caught.value)
  assert not (tmp_path / "hostile").exists()


def test_without_torch_a_pickle_is_refused_with_advice(tmp_path, monkeypatch):
  (tmp_path / "pytorch_model.bin").write_bytes(b"x")
  monkeypatch.setitem(sys.modules, "torch", None)
  with pytest.raises(InputError, match="pip install .as2jax"):
    read_tensors(tmp_path)
