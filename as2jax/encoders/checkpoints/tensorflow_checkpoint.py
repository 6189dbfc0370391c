"""TensorFlow checkpoints (the V2 form, Google's releases) as numpy arrays, without tensorflow.

`X.index` is a sorted table of LevelDB's layout: blocks of prefix-compressed keys, an index block,
a footer. Its first value describes the whole, each other one a tensor: type, shape, and the range
of bytes of `X.data-0000i-of-0000n` where it lies. See leveldb's table_format.md and
tensorflow/core/protobuf/tensor_bundle.proto.
"""

import contextlib
import dataclasses
import math
from collections.abc import Container, Iterator

import ml_dtypes
import numpy as np
from etils import epath

from as2jax.encoders.checkpoints import crc32c, git_lfs
from as2jax.runtime.errors import InputError

FOOTER, TABLE_MAGIC = 48, 0xDB4775248B80FB57  # bytes; the last eight of them
TRAILER = 5  # bytes behind a block: compression, checksum
MAX_KEY = 4096  # bytes; shared prefixes could otherwise add up to far more than the file
MAX_DIMENSIONS, MAX_SIZE = 64, 2**40  # numpy's; and, for empty tensors, of one dimension
DTYPES = {
  1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64, 14: ml_dtypes.bfloat16, 19: np.float16
}  # fmt: skip
DTYPE_NAMES = {4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 10: "bool"}
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # a string that TF 2 adds, never read: no weights
AGAIN = "fetch or copy it again"


class _Damaged(ValueError):
  """What is wrong with the file; `read` adds which file it is."""


@dataclasses.dataclass(frozen=True)
class _Entry:
  """Where a tensor lies: bytes from `offset` on of the data file number `shard`."""

  dtype: int
  shape: tuple[int, ...]
  shard: int
  offset: int
  size: int
  checksum: int | None
  sliced: bool


def read(prefix: epath.PathLike, keep: Container[str] | None = None) -> dict[str, np.ndarray]:
  """The variables of checkpoint `prefix` by name, sorted; only those in `keep` where given.

  `prefix` is the path without `.index`. Dtypes are the file's, but bfloat16 becomes float32. Every
  checksum of what is read is verified, those of the tensors too. Only kept tensors are read.

  Errors: `InputError` for a file that is not there, not whole, or a git-LFS pointer; for a
  compressed or big-endian table; for a kept variable that is stored in slices or is of a type other
  than float16, bfloat16, float32, float64, int32, int64; for a tensor outside its data file.
  """
  prefix = epath.Path(prefix)
  index = prefix.parent / f"{prefix.name}.index"
  with _errors_of(index):
    shards, entries = _read_index(index)
    kept = {
      name: entry
      for name, entry in entries.items()
      if name != OBJECT_GRAPH and (keep is None or name in keep)
    }
    _check(kept)
  tensors = {}
  for shard in sorted({entry.shard for entry in kept.values()}):
    file = prefix.parent / f"{prefix.name}.data-{shard:05d}-of-{shards:05d}"
    with _errors_of(file):
      chosen = {name: entry for name, entry in kept.items() if entry.shard == shard}
      tensors |= _read_shard(file, chosen)
  return {name: tensors[name] for name in kept}


@contextlib.contextmanager
def _errors_of(file: epath.Path) -> Iterator[None]:
  try:
    yield
  except _Damaged as error:
    raise InputError(f"{file}: {error}") from None
  except OSError as error:
    raise InputError(f"{file}: cannot be read ({error.strerror or error})") from None
  except (IndexError, UnicodeDecodeError):  # a number or a name that ends too late
    raise InputError(f"{file}: damaged; {AGAIN}") from None


def _read_index(file: epath.Path) -> tuple[int, dict[str, _Entry]]:
  """The number of data files, and every named entry."""
  git_lfs.refuse_pointer(file)
  table = file.read_bytes()
  footer = table[-FOOTER:]
  if len(footer) < FOOTER or int.from_bytes(footer[-8:], "little") != TABLE_MAGIC:
    raise _Damaged(f"not the index of a TensorFlow checkpoint, or truncated; {AGAIN}")
  _, position = _handle(footer, 0)
  where, _ = _handle(footer, position)
  shards, entries, last = None, {}, None
  for _, handle in _block(table, *where):
    for key, value in _block(table, *_handle(handle, 0)[0]):
      if last is not None and key <= last:  # also keeps a table from naming a block twice
        raise _Damaged(f"its keys are not in order; {AGAIN}")
      if last is None:
        if key:
          raise _Damaged(f"it has no header; {AGAIN}")
        shards = _header(value)
      elif not key.startswith(b"\0"):  # such keys are the parts of sliced variables
        entries[key.decode()] = _entry(value)
      last = key
  if shards is None:
    raise _Damaged(f"it is empty; {AGAIN}")
  for name, entry in entries.items():
    if not 0 <= entry.shard < shards:
      raise _Damaged(f"{name!r} lies in data file {entry.shard} of {shards}; {AGAIN}")
  return shards, entries


def _varint(data: bytes, position: int) -> tuple[int, int]:
  """An unsigned number of at most 64 bits, and the position behind it."""
  value = 0
  for shift in range(0, 70, 7):
    byte = data[position]
    position += 1
    value |= (byte & 0x7F) << shift
    if byte < 0x80:
      return value, position
  raise _Damaged(f"a number in it has no end; {AGAIN}")


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
  """A block's offset and size, and the position behind them."""
  offset, position = _varint(data, position)
  size, position = _varint(data, position)
  return (offset, size), position


def _block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
  """The keys and values of a block, its checksum verified."""
  trailer = table[offset + size : offset + size + TRAILER]
  if len(trailer) < TRAILER or size < 4:
    raise _Damaged(f"truncated: a block of its table is not there; {AGAIN}")
  if crc32c.masked(table[offset : offset + size + 1]) != int.from_bytes(trailer[1:], "little"):
    raise _Damaged(f"the checksum of a block does not match: damaged; {AGAIN}")
  if trailer[0]:
    how = "by snappy" if trailer[0] == 1 else f"in way {trailer[0]}"
    raise _Damaged(
      f"its table is compressed {how}, which is not read; write the checkpoint again with "
      "tf.compat.v1.train.Saver, which does not compress"
    )
  block = table[offset : offset + size]
  restarts = int.from_bytes(block[-4:], "little")  # only a binary search needs what they point to
  end = size - 4 - 4 * restarts
  if end < 0:
    raise _Damaged(f"a block has {restarts} restart points in {size} bytes; {AGAIN}")
  position, key = 0, b""
  while position < end:
    shared, position = _varint(block, position)
    fresh, position = _varint(block, position)
    length, position = _varint(block, position)
    if shared > len(key) or shared + fresh > MAX_KEY or position + fresh + length > end:
      raise _Damaged(f"a key of its table is damaged; {AGAIN}")
    key = key[:shared] + block[position : position + fresh]
    position += fresh + length
    yield key, block[position - length : position]


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
  """The fields of a protocol buffer: numbers of varint and fixed fields, bytes of the others."""
  position = 0
  while position < len(message):
    tag, position = _varint(message, position)
    kind = tag & 7
    if kind == 0:
      value, position = _varint(message, position)
    elif kind in (1, 2, 5):
      length, position = _varint(message, position) if kind == 2 else ({1: 8, 5: 4}[kind], position)
      value = message[position : position + length]
      if len(value) < length:
        raise _Damaged(f"an entry of it is cut off; {AGAIN}")
      position += length
      if kind != 2:
        value = int.from_bytes(value, "little")
    else:
      raise _Damaged(f"an entry of it is damaged; {AGAIN}")
    yield tag >> 3, value


def _number(value: int | bytes) -> int:
  if not isinstance(value, int):
    raise _Damaged(f"an entry of it has text for a number; {AGAIN}")
  return value


def _message(value: int | bytes) -> bytes:
  if not isinstance(value, bytes):
    raise _Damaged(f"an entry of it has a number for a record; {AGAIN}")
  return value


def _header(value: bytes) -> int:
  shards, endianness = 0, 0
  for field, content in _fields(value):
    if field == 1:
      shards = _number(content)
    elif field == 2:
      endianness = _number(content)
  if endianness:
    raise _Damaged("it was written big-endian, which is not read")
  if not 0 < shards < 100_000:
    raise _Damaged(f"it speaks of {shards} data files; {AGAIN}")
  return shards


def _entry(value: bytes) -> _Entry:
  numbers = {1: 0, 3: 0, 4: 0, 5: 0, 6: None}  # dtype, shard, offset, size, checksum
  shape, sliced = [], False
  for field, content in _fields(value):
    if field in numbers:
      numbers[field] = _number(content)
    elif field == 2:
      for inner, dimension in _fields(_message(content)):
        if inner == 2:
          sizes = [_number(x) for which, x in _fields(_message(dimension)) if which == 1]
          shape.append(sizes[-1] if sizes else 0)
        elif inner == 3:
          raise _Damaged(f"a tensor of it has no shape; {AGAIN}")
    elif field == 7:
      sliced = True
  dtype, shard, offset, size, checksum = numbers.values()
  return _Entry(dtype, tuple(shape), shard, offset, size, checksum, sliced)


def _check(entries: dict[str, _Entry]) -> None:
  for name, entry in entries.items():
    if entry.sliced:
      raise _Damaged(
        f"{name!r} is a partitioned variable, stored in slices, which is not read; save it again "
        "from a graph without a partitioner"
      )
    if entry.dtype not in DTYPES:
      kind = DTYPE_NAMES.get(entry.dtype, f"of type number {entry.dtype}")
      raise _Damaged(
        f"{name!r} is {kind}; only float16, bfloat16, float32, float64, int32 and int64 are read"
      )
    width = np.dtype(DTYPES[entry.dtype]).itemsize
    wrong = math.prod(entry.shape) * width != entry.size
    if wrong or len(entry.shape) > MAX_DIMENSIONS or max(entry.shape, default=0) > MAX_SIZE:
      raise _Damaged(
        f"{name!r} has {entry.size} bytes, but the shape {list(entry.shape)} of {width}-byte "
        f"numbers; {AGAIN}"
      )


def _read_shard(file: epath.Path, entries: dict[str, _Entry]) -> dict[str, np.ndarray]:
  git_lfs.refuse_pointer(file)
  length = file.stat().length
  for name, entry in entries.items():
    if entry.offset + entry.size > length:
      raise _Damaged(f"truncated: {name!r} reaches beyond its {length} bytes; {AGAIN}")
  if sum(entry.size for entry in entries.values()) > length:  # they overlap, many times perhaps
    raise _Damaged(f"it has {length} bytes, fewer than its tensors take together; {AGAIN}")
  tensors = {}
  with file.open("rb") as stream:
    for name, entry in sorted(entries.items(), key=lambda item: item[1].offset):
      raw = np.empty(entry.size, np.uint8)
      stream.seek(entry.offset)
      if stream.readinto(raw) != entry.size:
        raise _Damaged(f"{name!r} could not be read in full; {AGAIN}")
      if entry.checksum is not None and crc32c.masked(raw) != entry.checksum:
        raise _Damaged(f"the checksum of {name!r} does not match: damaged; {AGAIN}")
      tensor = raw.view(DTYPES[entry.dtype]).reshape(entry.shape)
      tensors[name] = tensor.astype(np.float32) if tensor.dtype == ml_dtypes.bfloat16 else tensor
  return tensors
