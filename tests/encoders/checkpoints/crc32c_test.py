"""CRC-32C against the published check values and a bitwise computation."""

import numpy as np
import pytest

from as2jax.encoders.checkpoints import crc32c


def bitwise(data):
  crc = 0xFFFFFFFF
  for byte in data:
    crc ^= byte
    for _ in range(8):
      crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
  return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
  "data, crc",
  [  # RFC 3720, B.4, and the check value of the catalogue of CRCs
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"123456789", 0xE3069283),
    (b"", 0),
  ],
)
def test_published_values(data, crc):
  assert crc32c.checksum(data) == crc


def test_every_length_is_what_the_bits_give(monkeypatch):
  data = np.random.default_rng(0).bytes(6000)
  for length in (*range(1, 20), 255, 256, 257, 511, 512, 513, 1024, 1025, 5999):
    assert crc32c.checksum(data[:length]) == bitwise(data[:length]), length
  monkeypatch.setattr(crc32c, "MAX_LANES", 4)  # several parts
  for length in (1023, 1024, 1025, 2048, 2049, 6000):
    assert crc32c.checksum(np.frombuffer(data[:length], np.uint8)) == bitwise(data[:length])


def test_the_mask_rotates_and_adds():
  assert crc32c.masked(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32
