"""State dicts that `torch.save` wrote, as numpy arrays: without torch, and without running them.

Two forms: the zip archive of torch 1.6 and later, and the older row of pickles with the raw
storages behind them, in which most files of 2019 and 2020 were published.
"""

import dataclasses
import functools
import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Container
from typing import Any

import ml_dtypes
import numpy as np
from etils import epath

from as2jax.encoders.checkpoints import git_lfs, restricted_pickle
from as2jax.encoders.checkpoints.restricted_pickle import PickleError
from as2jax.runtime.errors import InputError

ZIP, LOCAL_ENTRY = b"PK\x03\x04", struct.Struct("<4s22xHH")
LEGACY_MAGIC, LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
MAX_PICKLE = 64 << 20  # bytes; a state dict's pickle takes about 200 a tensor
MAX_REUSE = 4  # bytes of tensors for a byte of file: views may overlap, but not without end
MAX_DIMENSIONS = 64  # numpy's
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = dict(zip(
  "Double Float Half BFloat16 Long Int Short Char Byte Bool".split(),
  map(np.dtype, ("<f8", "<f4", "<f2", BFLOAT16, "<i8", "<i4", "<i2", "i1", "u1", "?")),
))  # fmt: skip
AGAIN = "fetch or copy it again"


@dataclasses.dataclass(frozen=True)
class _Storage:
  """`count` elements from `start` on of the stored array `key`."""

  key: str
  dtype: np.dtype
  start: int
  count: int


@dataclasses.dataclass(frozen=True)
class _Tensor:
  """A view of a storage; offset and strides in elements."""

  storage: _Storage
  offset: int
  shape: tuple[int, ...]
  strides: tuple[int, ...]

  @property
  def bytes(self) -> int:
    return math.prod(self.shape) * self.storage.dtype.itemsize


def read(path: epath.PathLike, keep: Container[str] | None = None) -> dict[str, np.ndarray]:
  """The tensors of a state dict by name, in the file's order; only those in `keep` where given.

  Dtypes are the file's, but bfloat16 becomes float32. The file is mapped into memory: what is not
  kept is never loaded. Tensors that are the same view of a storage (tied weights) are one array.
  The zip form carries checksums, which are verified for what is kept; the older form has none.
  A state dict inside another dict is not looked for: the caller could not tell which one it got.

  Errors: `InputError` for a file that is not there, not whole, a git-LFS pointer or not torch's;
  for a pickle that asks for anything but tensors; for a tensor that reaches beyond its storage.
  """
  file = epath.Path(path)
  try:
    git_lfs.refuse_pointer(file)
    if not file.stat().length:
      raise PickleError(f"the file is empty; {AGAIN}")
    data = np.asarray(np.memmap(os.fspath(file), np.uint8, "r"))
    storages = _Storages()
    form = _read_zip if data[: len(ZIP)].tobytes() == ZIP else _read_legacy
    state, stored = form(file, data, storages)
    return _tensors(_state_dict(state), stored, keep, data.size)
  except PickleError as error:
    raise InputError(f"{file}: {error}") from None
  except OSError as error:
    raise InputError(f"{file}: cannot be read ({error.strerror or error})") from None


class _Storages:
  """The storages that a pickle speaks of: key -> (dtype, number of elements)."""

  def __init__(self):
    self.specs: dict[str, tuple[np.dtype, int]] = {}

  def resolve(self, persistent_id: Any) -> _Storage:
    kind, dtype, key, _, count, *view = persistent_id
    if kind != "storage" or not isinstance(dtype, np.dtype) or not isinstance(key, str):
      raise TypeError
    if not _is_size(count) or self.specs.setdefault(key, (dtype, count)) != (dtype, count):
      raise PickleError(f"the storage {key[:80]!r} has two types or lengths, or none; {AGAIN}")
    if not view or view == [None]:
      return _Storage(key, dtype, 0, count)
    ((_, start, length),) = view  # before torch 1.10 a storage could itself be part of another
    if not _is_size(start) or not _is_size(length) or start + length > count:
      raise PickleError(f"a view reaches beyond the storage {key[:80]!r}; {AGAIN}")
    return _Storage(key, dtype, start, length)


def _is_size(value: Any) -> bool:
  return type(value) is int and 0 <= value < 2**63


def _rebuild_tensor(storage, offset, shape, strides, requires_grad, hooks, metadata=None):
  if not isinstance(storage, _Storage):
    raise TypeError
  if metadata:
    raise PickleError("a tensor that is stored conjugated or negated is not read")
  if not len(shape) == len(strides) <= MAX_DIMENSIONS:
    raise PickleError(f"a tensor has {len(shape)} dimensions and {len(strides)} strides; {AGAIN}")
  if not all(map(_is_size, (offset, *shape, *strides))):
    raise PickleError(f"a tensor's offset, shape or strides are not sizes; {AGAIN}")
  return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_parameter(tensor, requires_grad, hooks):
  if not isinstance(tensor, _Tensor):
    raise TypeError
  return tensor


def _ordered_dict(entries=()):
  ordered = {}
  for key, value in entries:  # Python 2 wrote them so
    if not isinstance(key, str):
      raise TypeError
    ordered[key] = value
  if entries:
    entries.clear()  # used once: a pickle cannot have it copied over and over
  return ordered


def _size(sizes):
  if not isinstance(sizes, tuple):
    raise TypeError
  return sizes


KNOWN = {
  "collections.OrderedDict": _ordered_dict,
  "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
  "torch._utils._rebuild_parameter": _rebuild_parameter,
  "torch.Size": _size,
} | {f"torch.{name}Storage": dtype for name, dtype in DTYPES.items()}
KNOWN |= {f"torch.{dtype.name}": dtype.name for dtype in DTYPES.values()}


def _read_zip(
  file: epath.Path, data: np.ndarray, storages: _Storages
) -> tuple[Any, Callable[[str], np.ndarray]]:
  """The pickled object of an archive, and a function from a storage's key to its bytes."""
  try:
    with zipfile.ZipFile(os.fspath(file)) as archive:
      entries = {entry.filename: entry for entry in archive.infolist()}
  # What damage makes the standard library raise, apart from its own BadZipFile.
  except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, OverflowError,
          EOFError, IndexError, OSError):  # fmt: skip
    raise PickleError(f"not a whole zip archive; {AGAIN}") from None
  pickles = [name for name in entries if name.count("/") == 1 and name.endswith("/data.pkl")]
  if len(pickles) != 1:
    raise PickleError(
      f"a zip archive, but not of torch.save: {len(pickles)} data.pkl where one should be"
    )
  (name,) = pickles
  folder = name.removesuffix("data.pkl")
  if f"{folder}constants.pkl" in entries:
    raise PickleError("a TorchScript program (torch.jit.save), not a state dict")
  if entries[name].file_size > MAX_PICKLE:
    raise PickleError(f"its pickle has {entries[name].file_size} bytes: not a state dict; {AGAIN}")
  order = f"{folder}byteorder"
  if order in entries and _entry(data, entries[order]).tobytes() != b"little":
    raise PickleError("it was written big-endian, which is not read")

  @functools.cache
  def stored(key: str) -> np.ndarray:
    place = f"{folder}data/{key}"
    if place not in entries:
      raise PickleError(f"the storage {place[:80]!r} is not in the archive; {AGAIN}")
    dtype, count = storages.specs[key]
    content = _entry(data, entries[place])
    if content.size != count * dtype.itemsize:
      raise PickleError(f"{place!r} has {content.size} bytes, not {count} x {dtype}; {AGAIN}")
    return content

  pickled = io.BytesIO(_entry(data, entries[name]).tobytes())
  return restricted_pickle.load(pickled, KNOWN, storages.resolve), stored


def _entry(data: np.ndarray, entry: zipfile.ZipInfo) -> np.ndarray:
  """The bytes of an uncompressed entry where they lie in the file, their checksum verified."""
  name = entry.filename[:80]
  if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
    raise PickleError(f"the entry {name!r} is compressed, which torch.save never does; {AGAIN}")
  header = data[entry.header_offset :][: LOCAL_ENTRY.size].tobytes()
  if len(header) < LOCAL_ENTRY.size or not header.startswith(ZIP):
    raise PickleError(f"the entry {name!r} is not where the archive says; {AGAIN}")
  _, name_length, extra_length = LOCAL_ENTRY.unpack(header)
  start = entry.header_offset + LOCAL_ENTRY.size + name_length + extra_length
  content = data[start : start + entry.file_size]
  if content.size != entry.file_size or zlib.crc32(content) != entry.CRC:
    raise PickleError(f"the checksum of {name!r} does not match: damaged; {AGAIN}")
  return content


def _read_legacy(
  file: epath.Path, data: np.ndarray, storages: _Storages
) -> tuple[Any, Callable[[str], np.ndarray]]:
  """The same for the form before torch 1.6: five pickles, then each storage behind its length."""
  stream = io.BytesIO(data[:MAX_PICKLE].tobytes())
  try:
    magic = restricted_pickle.load(stream, {})
  except PickleError:
    magic = None
  if magic != LEGACY_MAGIC:
    raise PickleError(f"not a file of torch.save (or one from before 2017, in tar form); {AGAIN}")
  if restricted_pickle.load(stream, {}) != LEGACY_PROTOCOL:
    raise PickleError("its torch.save protocol is not 1001, which is the only one that is read")
  system = restricted_pickle.load(stream, {})
  if not isinstance(system, dict) or system.get("little_endian") is not True:
    raise PickleError(f"it was not written little-endian, or its head is damaged; {AGAIN}")
  state = restricted_pickle.load(stream, KNOWN, storages.resolve)
  keys = restricted_pickle.load(stream, {})
  if not isinstance(keys, list) or sorted(map(str, keys)) != sorted(storages.specs):
    raise PickleError(f"its list of storages is not that of its tensors; {AGAIN}")
  position, places = stream.tell(), {}
  for key in keys:
    dtype, count = storages.specs[key]
    written = int.from_bytes(data[position : position + 8].tobytes(), "little")
    stop = position + 8 + count * dtype.itemsize
    if written != count or stop > data.size:
      raise PickleError(f"truncated or damaged in the storage {key[:80]!r}; {AGAIN}")
    places[key] = data[position + 8 : stop]
    position = stop
  if position != data.size:
    raise PickleError(f"{data.size - position} bytes too long; {AGAIN}")
  return state, places.__getitem__


def _state_dict(state: Any) -> dict[str, _Tensor]:
  """`state`, which must be names and tensors and nothing else."""
  if not isinstance(state, dict):
    raise PickleError(f"holds one {type(state).__name__.strip('_')}, not a state dict")
  for key, value in state.items():
    if not isinstance(key, str) or not isinstance(value, _Tensor):
      shown = ", ".join(repr(name)[:80] for name in list(state)[:10])
      more = f" and {len(state) - 10} more" if len(state) > 10 else ""
      raise PickleError(
        f"not a state dict: {key!r:.80} holds no tensor. Its keys are {shown}{more}; save the one "
        "with the weights alone, torch.save(torch.load(file)[key], other_file)"
      )
  return state


def _tensors(tensors, stored, keep, file_size) -> dict[str, np.ndarray]:
  for name, tensor in tensors.items():
    count = math.prod(tensor.shape)
    last = tensor.offset + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides))
    if count and last >= tensor.storage.count:
      raise PickleError(
        f"the tensor {name[:80]!r} {list(tensor.shape)} reaches beyond its storage: element {last} "
        f"of {tensor.storage.count}; {AGAIN}"
      )
    if count > tensor.storage.count:
      raise PickleError(
        f"the tensor {name[:80]!r} {list(tensor.shape)} repeats its storage of "
        f"{tensor.storage.count} elements; save it with .contiguous()"
      )
  kept = {name: tensor for name, tensor in tensors.items() if keep is None or name in keep}
  views = set(kept.values())
  if sum(view.bytes for view in views) > MAX_REUSE * file_size:
    raise PickleError(f"its tensors are more than {MAX_REUSE} times the file: not weights; {AGAIN}")
  arrays = {view: _array(view, stored) for view in views}
  return {name: arrays[tensor] for name, tensor in kept.items()}


def _array(tensor: _Tensor, stored: Callable[[str], np.ndarray]) -> np.ndarray:
  """The tensor's own contiguous copy, made from the elements it spans."""
  storage, dtype = tensor.storage, tensor.storage.dtype
  result = np.float32 if dtype == BFLOAT16 else dtype
  if 0 in tensor.shape:
    if math.prod(max(size, 1) for size in tensor.shape) >= 2**31:
      raise PickleError(f"an empty tensor has the shape {list(tensor.shape)}; {AGAIN}")
    return np.empty(tensor.shape, result)
  if dtype == np.bool_:  # a byte other than 0 and 1 is no numpy bool
    dtype = np.dtype("u1")
  elements = stored(storage.key).view(dtype)[storage.start + tensor.offset :]
  # The stride of a single element is free, and may be more than numpy can count.
  strides = [s * dtype.itemsize if n > 1 else 0 for n, s in zip(tensor.shape, tensor.strides)]
  return np.lib.stride_tricks.as_strided(elements, tensor.shape, strides).astype(result, order="C")
