"""Pickles as data: what Python's own unpickler reads of plain data, and what a bad one may cost."""

import io
import pickle
import time
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from as2jax.encoders.checkpoints import restricted_pickle, torch_pickle
from as2jax.encoders.checkpoints.restricted_pickle import PickleError


@given(st.lists(st.sampled_from([bytes([i]) for i in range(256)]), max_size=40))
def test_any_bytes_are_a_value_or_an_error(codes):
  try:
    restricted_pickle.load(io.BytesIO(b"".join(codes) + b"."), torch_pickle.KNOWN)
  except PickleError:
    pass


def test_a_pickle_cannot_cost_more_than_its_size():
  nest = b"\x80\x02}K\x00" + b"2\x86" * 300 + b"K\x01s."  # 2**300 leaves, as a key
  for data in (
    nest,
    b"\x80\x02}r\xff\xff\xff\xff0N.",  # memo index 2**32 - 1
    b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".",  # a bytearray of 1 TiB
    b"\x80\x04\x8d" + (2**62).to_bytes(8, "little") + b".",
  ):
    tracemalloc.start()
    begin = time.monotonic()
    try:
      assert restricted_pickle.load(io.BytesIO(data), {}) is None
    except PickleError:
      pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e6 and time.monotonic() - begin < 10


def test_pickles_of_plain_data_are_what_python_reads():
  data = {"a": [1, -2, 2**40, 2.5, None, True], "b": (b"x", ("y",), {}), "c": {1: "é" * 300}}
  for protocol in (0, 2, 3, 4, 5):
    if protocol == 0 or protocol == 2:  # these spell bytes as a call of _codecs.encode
      data = data | {"b": (("y",), (1, 2, 3, 4), [])}
    stream = io.BytesIO(pickle.dumps(data, protocol) + b"after")
    assert restricted_pickle.load(stream, {}) == data
    assert stream.read() == b"after"


def test_a_broken_escape_in_an_old_string_is_no_warning():
  assert restricted_pickle.load(io.BytesIO(b"S'a\\o'\n."), {}) == "a\\o"
