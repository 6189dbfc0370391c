"""CRC-32C (Castagnoli), the checksum of TensorFlow's checkpoints, fast enough for their weights."""

import functools

import numpy as np

POLYNOMIAL = 0x82F63B78  # reflected
MASK_ADDEND = 0xA282EAD8
LANE, MAX_LANES = 256, 1 << 14  # bytes of a lane; lanes that step together


def masked(data: bytes | np.ndarray) -> int:
  """The checksum of `data` (bytes, or uint8 [n]) as it is stored: rotated, and a constant added."""
  crc = checksum(data)
  return ((crc >> 15 | crc << 17) + MASK_ADDEND) & 0xFFFFFFFF


def checksum(data: bytes | np.ndarray) -> int:
  """The plain CRC-32C of `data`: 0xE3069283 for b"123456789".

  A CRC is linear over GF(2): lanes of 256 bytes are computed side by side in numpy and joined in
  pairs, the left one carried over as many zeros as the right one is long.
  """
  data = np.frombuffer(data, np.uint8)
  if data.size < 4:
    crc = 0xFFFFFFFF
    for byte in data.tolist():
      crc = int(_byte_table()[(crc ^ byte) & 0xFF]) ^ crc >> 8
    return crc ^ 0xFFFFFFFF
  whole = LANE * MAX_LANES
  # Zeros in front change nothing while the register is zero, so only the first part is padded; the
  # register that starts as all ones is the same as the first four bytes inverted.
  first = (data.size - 4) % whole + 4
  lanes = 1
  while lanes * LANE < first:
    lanes *= 2
  padded = np.zeros(lanes * LANE, np.uint8)
  padded[-first:] = data[:first]
  padded[-first:][:4] ^= 0xFF
  crc, done = _lanes(padded), first
  while done < data.size:
    carried = _apply(_zeros(MAX_LANES.bit_length() - 1), np.array([crc], np.uint32))
    crc = int(carried[0]) ^ _lanes(data[done : done + whole])
    done += whole
  return crc ^ 0xFFFFFFFF


def _lanes(data: np.ndarray) -> int:
  """The CRC, from a zero register, of a power of two of lanes."""
  words = np.ascontiguousarray(data.view("<u2").reshape(-1, LANE // 2).T)
  table, crc = _word_table(), np.zeros(words.shape[1], np.uint32)
  for word in words:
    crc = np.take(table, crc.astype(np.uint16) ^ word) ^ crc >> np.uint32(16)
  level = 0
  while crc.size > 1:
    crc = _apply(_zeros(level), crc[::2]) ^ crc[1::2]
    level += 1
  return int(crc[0])


@functools.cache
def _byte_table() -> np.ndarray:
  table = np.arange(256, dtype=np.uint32)
  for _ in range(8):
    table = np.where(table & 1, table >> np.uint32(1) ^ np.uint32(POLYNOMIAL), table >> 1)
  return table.astype(np.uint32)


@functools.cache
def _word_table() -> np.ndarray:
  """What two zero bytes make of each register below 2**16."""
  crc = np.arange(1 << 16, dtype=np.uint32)
  for _ in range(2):
    crc = _byte_table()[crc & 0xFF] ^ crc >> np.uint32(8)
  return crc


@functools.cache
def _zeros(level: int) -> np.ndarray:
  """The operator of 256 * 2**level zero bytes, as a table [4, 256] for the register's bytes."""
  if level:
    half = _zeros(level - 1)
    return _apply(half, half)
  operator = np.arange(256, dtype=np.uint32) << np.array([[0], [8], [16], [24]], np.uint32)
  for _ in range(LANE // 2):
    operator = _word_table()[operator & 0xFFFF] ^ operator >> np.uint32(16)
  return operator


def _apply(operator: np.ndarray, crc: np.ndarray) -> np.ndarray:
  parts = [operator[i][crc >> np.uint32(8 * i) & np.uint32(0xFF)] for i in range(4)]
  return parts[0] ^ parts[1] ^ parts[2] ^ parts[3]
