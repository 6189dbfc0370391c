"""State dicts read without torch: against torch where it is installed, and files made by hand."""

import collections
import io
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weight_files import archive, legacy, number, plain, sizes, state, tensor, text

from as2jax.encoders.checkpoints import torch_pickle
from as2jax.runtime.errors import InputError

ARRAYS = {
  "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
  "a.bias": np.float32([0.5, -1, 3]),
}
FORMS = {"zip": archive, "legacy": legacy}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def written(folder, data):
  path = folder / "pytorch_model.bin"
  path.write_bytes(data)
  return path


def same(actual, expected):
  assert list(actual) == list(expected)
  for name, array in expected.items():
    assert actual[name].dtype == array.dtype and actual[name].flags.aligned
    np.testing.assert_array_equal(actual[name], array, strict=True)


def as_numpy(value):
  return (value.float() if str(value.dtype) == "torch.bfloat16" else value).detach().numpy()


def odd_tensors(torch):
  base = torch.arange(60, dtype=torch.float32)
  return collections.OrderedDict(
    transposed=base.view(5, 12).T,
    view=base[7:43:3],
    middle=base.view(3, 4, 5)[1:, 1:3, ::2],
    tied=base,
    parameter=torch.nn.Parameter(torch.randn(2, 3)),
    scalar=torch.tensor(3.5),
    nothing=torch.zeros(0, 4),
    byte=torch.tensor([1, 2, 3], dtype=torch.uint8),
    half=torch.randn(3).half(),
    bfloat=torch.randn(3, 5).bfloat16().T,
    double=torch.randn(2, dtype=torch.float64),
    ids=torch.arange(5).unsqueeze(0),
    small=torch.tensor([-3], dtype=torch.int16),
    flags=torch.tensor([True, False]),
  )


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("protocol", [2, 4])
def test_gives_what_torch_gives(tmp_path, new, protocol):
  torch = pytest.importorskip("torch")
  path, tensors = tmp_path / "x.bin", odd_tensors(torch)
  torch.save(tensors, path, _use_new_zipfile_serialization=new, pickle_protocol=protocol)
  expected = {name: as_numpy(value) for name, value in tensors.items()}
  same(torch_pickle.read(path), expected)
  same(torch_pickle.read(path, {"bfloat", "view"}), {k: expected[k] for k in ("view", "bfloat")})


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_reads_the_state_dict_of_a_module_and_refuses_the_module(tmp_path, new):
  torch = pytest.importorskip("torch")
  path = tmp_path / "x.bin"
  module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
  torch.save(module.state_dict(), path, _use_new_zipfile_serialization=new)
  same(torch_pickle.read(path), {k: v.numpy() for k, v in module.state_dict().items()})
  torch.save(module, path, _use_new_zipfile_serialization=new)
  with pytest.raises(InputError, match="tensors only.*wants to run torch.nn.modules.container"):
    torch_pickle.read(path)


@forms
def test_reads_files_made_by_hand(tmp_path, form):
  path = written(tmp_path, form(*plain(ARRAYS)))
  same(torch_pickle.read(path), ARRAYS)
  assert torch_pickle.read(path, keep=()) == {}
  actual = torch_pickle.read(path)["a.bias"]
  actual[0] = 7  # its own memory, not the file's
  same(torch_pickle.read(path), ARRAYS)


@forms
def test_tied_weights_are_one_array(tmp_path, form):
  raw = {"0": ARRAYS["a.weight"].tobytes()}
  one = tensor("0", 12, (3, 4), (4, 1))
  actual = torch_pickle.read(written(tmp_path, form(state(a=one, b=one), raw)))
  assert actual["a"] is actual["b"]


def test_python_2_and_views_of_storages_are_read(tmp_path):
  entries = (
    b"](]("
    + text("w")
    + tensor("0", 12, (2,), (2,), offset=1, view=b"(" + text("v") + number(4) + number(5) + b"t")
  )
  pickled = b"\x80\x02ccollections\nOrderedDict\n(" + entries + b"eetR."
  path = written(tmp_path, legacy(pickled, {"0": ARRAYS["a.weight"].tobytes()}))
  same(torch_pickle.read(path), {"w": np.float32([5, 7])})


def test_what_is_not_kept_is_not_loaded(tmp_path):
  big = np.zeros(4_000_000, np.float32)
  pickled, storages = plain({"big": big, "small": ARRAYS["a.bias"]})
  for form in FORMS.values():
    path = written(tmp_path, form(pickled, storages))
    tracemalloc.start()
    same(torch_pickle.read(path, {"small"}), {"small": ARRAYS["a.bias"]})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The old form's pickle has no length of its own: its head is searched.
    assert peak < (1e6 if form is archive else 2.2 * big.nbytes)


class Runs:
  def __init__(self, function, *arguments):
    self.call = function, arguments

  def __reduce__(self):
    return self.call


@forms
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_wants_to_run_code_runs_nothing(tmp_path, form, protocol):
  import os

  mark = tmp_path / "was_run"
  for function, name in ((os.mkdir, "posix.mkdir"), (eval, r"builtins.eval|__builtin__.eval")):
    call = Runs(function, f"__import__('os').mkdir({str(mark)!r})" if function is eval else mark)
    path = written(tmp_path, form(pickle.dumps({"a": call}, protocol)))
    with pytest.raises(InputError, match=f"pytorch_model.bin: tensors only.*run ({name}),"):
      torch_pickle.read(path)
    assert not mark.exists()


@pytest.mark.parametrize(
  "name",
  [
    "torch QInt8Storage",
    "torch.storage _load_from_bytes",
    "collections defaultdict",
    "torch._utils _rebuild_qtensor",
  ],
)
def test_other_globals_are_refused(tmp_path, name):
  path = written(tmp_path, archive(b"\x80\x02c" + name.replace(" ", "\n").encode() + b"\n."))
  with pytest.raises(InputError, match=f"tensors only.*run {name.replace(' ', '.')},"):
    torch_pickle.read(path)


def test_a_state_dict_within_another_dict_is_not_guessed(tmp_path):
  inner = b"}(" + text("w") + tensor("0", 3, (3,), (1,)) + b"u"
  pickled = state(epoch=number(3), state_dict=inner)
  path = written(tmp_path, archive(pickled, {"0": bytes(12)}))
  with pytest.raises(InputError, match="'epoch' holds no tensor.*'epoch', 'state_dict'.*alone"):
    torch_pickle.read(path)
  path = written(tmp_path, archive(b"\x80\x02](e."))
  with pytest.raises(InputError, match="holds one list, not a state dict"):
    torch_pickle.read(path)


@forms
@pytest.mark.parametrize(
  "change, message",
  [
    (dict(shape=(3, 5)), r"'w' \[3, 5\] reaches beyond its storage: element 12 of 12"),
    (dict(offset=1), r"element 12 of 12"),
    (dict(strides=(5, 1)), "element 13 of 12"),
    (dict(shape=(2**62, 2**62)), "reaches beyond"),
    (dict(shape=(2**40,), strides=(0,)), "repeats its storage of 12"),
    (dict(shape=(0, 2**62)), "an empty tensor"),
    (dict(offset=-1), "are not sizes"),
    (dict(shape=(-1, 4)), "are not sizes"),
    (dict(shape=(2**70, 4)), "are not sizes"),
    (dict(shape=(2**1000, 4), strides=(1, 1)), "a number of 1001 bits"),
    (dict(strides=(1,)), "2 dimensions and 1 strides"),
    (dict(count=13, shape=(13,), strides=(1,)), r"'some/data/0' has 48 bytes|truncated or damaged"),
    (dict(kind="Double"), r"48 bytes, not 12 x float64|truncated or damaged"),
    (dict(count=-1), "two types or lengths, or none"),
    (dict(key="1"), "'some/data/1' is not in the archive|list of storages"),
    (dict(metadata=b"}(" + text("conj") + b"\x88u"), "conjugated"),
    (dict(view=b"(" + text("v") + number(6) + number(7) + b"t"), "view reaches beyond"),
  ],
)  # fmt: skip
def test_a_tensor_that_does_not_fit_its_storage_is_named(tmp_path, form, change, message):
  good = dict(key="0", count=12, shape=(3, 4), strides=(4, 1))
  path = written(tmp_path, form(state(w=tensor(**good | change)), {"0": bytes(48)}))
  with pytest.raises(InputError, match=f"pytorch_model.bin: .*({message})"):
    torch_pickle.read(path)


def test_a_single_element_may_have_any_stride(tmp_path):
  one = tensor("0", 3, (1, 3), (2**62, 1))
  actual = torch_pickle.read(written(tmp_path, archive(state(w=one), {"0": bytes(12)})))
  same(actual, {"w": np.zeros((1, 3), np.float32)})


def test_many_views_do_not_add_up(tmp_path):
  views = {f"t{i}": tensor("0", 1000, (900,), (1,), offset=i) for i in range(99)}
  path = written(tmp_path, archive(state(**views), {"0": bytes(4000)}))
  assert len(torch_pickle.read(path, {"t1", "t2"})) == 2
  with pytest.raises(InputError, match="more than 4 times the file"):
    torch_pickle.read(path)


GOOD = archive(*plain(ARRAYS))
OLD = legacy(*plain(ARRAYS))


def other_zip():
  stream = io.BytesIO()
  with zipfile.ZipFile(stream, "w") as writer:
    writer.writestr("word/document.xml", "x")
  return stream.getvalue()


@pytest.mark.parametrize(
  "data, message",
  [
    (b"", "empty"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-LFS pointer"),
    (b"<!DOCTYPE html><html>", "not a file of torch.save"),
    (other_zip(), "not of torch.save: 0 data.pkl"),
    (archive(*plain(ARRAYS), **{"constants.pkl": b"x"}), "TorchScript"),
    (archive(*plain(ARRAYS), byteorder=b"big"), "big-endian"),
    (archive(*plain(ARRAYS), how=zipfile.ZIP_DEFLATED), "compressed"),
    (GOOD[:-1], "not a whole zip"),
    (GOOD[: len(GOOD) // 2], "not a whole zip"),
    (GOOD.replace(np.float32(11).tobytes(), np.float32(12).tobytes()), "'some/data/0' does not"),
    (OLD[:-1], "truncated or damaged in the storage '1'"),
    (OLD[:70], "pickle is damaged"),
    (OLD + b"x", "1 bytes too long"),
    (OLD.replace(b"\x8a\x02\xe9\x03", b"\x8a\x02\xea\x03"), "protocol is not 1001"),
    (legacy(*plain(ARRAYS), little=b"\x89"), "not written little-endian"),
  ],
)
def test_a_file_that_is_not_whole_is_named(tmp_path, data, message):
  with pytest.raises(InputError, match=f"pytorch_model.bin: .*{message}"):
    torch_pickle.read(written(tmp_path, data))


def test_a_missing_file_is_named(tmp_path):
  for path, message in ((tmp_path / "none.bin", "cannot be read"), (tmp_path, "is a directory")):
    with pytest.raises(InputError, match=message):
      torch_pickle.read(path)


def damaged(data, flips):
  data = bytearray(data)
  for place, bits in flips:
    data[place % len(data)] ^= bits
  return bytes(data)


FLIPS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=3)


@given(flips=FLIPS)
def test_a_damaged_archive_gives_the_right_tensors_or_an_error(tmp_path, flips):
  try:
    same(torch_pickle.read(written(tmp_path, damaged(GOOD, flips))), ARRAYS)
  except InputError as error:
    assert "pytorch_model.bin: " in str(error)


@given(flips=FLIPS)
def test_a_damaged_old_file_gives_no_more_than_it_holds_or_an_error(tmp_path, flips):
  # This form has no checksum: numbers and names may be others, unseen by torch too.
  try:
    actual = torch_pickle.read(written(tmp_path, damaged(OLD, flips)))
  except InputError as error:
    assert "pytorch_model.bin: " in str(error)
  else:
    assert sum(array.nbytes for array in actual.values()) <= 4 * len(OLD)


@forms
def test_a_truncation_is_an_error(tmp_path, form):
  data = form(*plain(ARRAYS))
  for length in [*range(0, len(data), 3), len(data) - 1]:
    with pytest.raises(InputError):
      torch_pickle.read(written(tmp_path, data[:length]))


def test_sizes_may_be_a_torch_size(tmp_path):
  shape = b"ctorch\nSize\n(" + sizes((3, 4)) + b"tR"
  pickled = state(w=tensor("0", 12, (3, 4), (4, 1)).replace(sizes((3, 4)), shape))
  raw = {"0": ARRAYS["a.weight"].tobytes()}
  same(torch_pickle.read(written(tmp_path, archive(pickled, raw))), {"w": ARRAYS["a.weight"]})
