"""Weight files made by hand, from the descriptions of their formats and without their libraries."""

import io
import struct
import zipfile

import numpy as np

from as2jax.encoders.checkpoints import crc32c

TORCH_NAMES = {"f4": "Float", "f2": "Half", "f8": "Double", "i8": "Long", "b1": "Bool"}
TF_TYPES = {"f4": 1, "f8": 2, "i4": 3, "i8": 9, "bfloat16": 14, "f2": 19}


def text(value):
  return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
  data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
  return b"\x8a" + bytes([len(data)]) + data


def sizes(values):
  return b"(" + b"".join(map(number, values)) + b"t"


def tensor(key, count, shape, strides, offset=0, kind="Float", view=b"", metadata=b""):
  """The operations that push one tensor."""
  storage = b"(" + text("storage") + f"ctorch\n{kind}Storage\n".encode() + text(key) + text("cpu")
  return (
    b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(count) + view + b"tQ"
    + number(offset) + sizes(shape) + sizes(strides)
    + b"\x89ccollections\nOrderedDict\n)R" + metadata + b"tR"
  )  # fmt: skip


def state(**values):
  """A pickled dict of names and what pushes their values."""
  return b"\x80\x02}(" + b"".join(text(k) + v for k, v in values.items()) + b"u."


def plain(arrays):
  """The pickle of contiguous arrays, and the storages by key."""
  values, storages = {}, {}
  for key, (name, array) in enumerate(arrays.items()):
    kind = TORCH_NAMES[array.dtype.str[1:]]
    strides = [s // array.itemsize for s in array.strides]
    values[name] = tensor(str(key), array.size, array.shape, strides, kind=kind)
    storages[str(key)] = array.tobytes()
  return state(**values), storages


def archive(pickled, storages=(), how=zipfile.ZIP_STORED, **more):
  stream = io.BytesIO()
  with zipfile.ZipFile(stream, "w", how) as writer:
    writer.writestr("some/data.pkl", pickled)
    for name, content in more.items():
      writer.writestr(f"some/{name}", content)
    for key, content in dict(storages).items():
      writer.writestr(f"some/data/{key}", content)
    writer.writestr("some/version", b"3\n")
  return stream.getvalue()


def legacy(pickled, storages=(), itemsize=4, little=b"\x88"):
  """The form before torch 1.6, all storages of one item size."""
  stop, storages = b".", dict(storages)
  head = b"\x80\x02" + number(0x1950A86A20F9469CFC6C) + stop + b"\x80\x02" + number(1001) + stop
  system = b"\x80\x02}(" + text("little_endian") + little + b"u" + stop
  keys = b"\x80\x02](" + b"".join(map(text, storages)) + b"e" + stop
  raw = (struct.pack("<q", len(x) // itemsize) + x for x in storages.values())
  return head + system + pickled + keys + b"".join(raw)


def varint(value):
  data = bytearray()
  while value > 0x7F:
    data.append(value & 0x7F | 0x80)
    value >>= 7
  return bytes(data) + bytes([value])


def record(field, content):
  return varint(field << 3 | 2) + varint(len(content)) + content


def entry(kind, shape, shard, offset, size, checksum, more=b""):
  dims = b"".join(record(2, b"\x08" + varint(n)) for n in shape)
  numbers = ((1, kind), (3, shard), (4, offset), (5, size))
  fields = b"".join(varint(f << 3) + varint(v) for f, v in numbers)
  return fields + record(2, dims) + b"\x35" + struct.pack("<I", checksum) + more


def block(pairs, compression=0):
  data, last, restarts = b"", b"", []
  for i, (key, value) in enumerate(pairs):
    shared = 0
    if i % 3:
      shared = next((j for j, (a, b) in enumerate(zip(key, last)) if a != b), len(last))
    else:
      restarts.append(len(data))
    data += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
    last = key
  data += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts)) + bytes([compression])
  return data + struct.pack("<I", crc32c.masked(data))


def table(pairs, a_block=4, compression=0):
  """A sorted table in blocks of a few keys."""
  data, handles = b"", []
  for start in range(0, len(pairs), a_block):
    part = block(pairs[start : start + a_block], compression)
    handles.append((pairs[start : start + a_block][-1][0], varint(len(data)), len(part) - 5))
    data += part
  index = block([(key, offset + varint(size)) for key, offset, size in handles])
  footer = varint(0) + varint(0) + varint(len(data)) + varint(len(index) - 5)
  return data + index + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def checkpoint(prefix, arrays, shards=2, change=lambda pairs: pairs, **options):
  """Writes a TensorFlow checkpoint; the tensors go to its data files in turn."""
  data, pairs = [b""] * shards, [(b"", b"\x08" + varint(shards))]
  for i, (name, array) in enumerate(sorted(arrays.items())):
    raw, shard = np.ascontiguousarray(array).tobytes(), i % shards
    kind = TF_TYPES["bfloat16" if array.dtype.name == "bfloat16" else array.dtype.str[1:]]
    pairs.append((
      name.encode(),
      entry(kind, array.shape, shard, len(data[shard]), len(raw), crc32c.masked(raw)),
    ))  # fmt: skip
    data[shard] += raw
  prefix.with_name(f"{prefix.name}.index").write_bytes(table(change(pairs), **options))
  for shard, raw in enumerate(data):
    prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}").write_bytes(raw)
  return prefix
