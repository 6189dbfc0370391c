"""Prefetching: the order of a plain loop, its errors, and no thread left behind."""

import threading

import pytest

from as2jax.data.batches.prefetch import prefetch


def _threads():
  return [t for t in threading.enumerate() if t.name.startswith("prefetch")]


def test_items_come_in_order():
  assert list(prefetch(lambda i: i * i, range(20))) == [i * i for i in range(20)]
  assert not _threads()


def test_an_error_comes_where_its_item_would():
  def make(i):
    if i == 3:
      raise KeyError("three")
    return i

  got = []
  with pytest.raises(KeyError, match="three"):
    for item in prefetch(make, range(9)):
      got.append(item)
  assert got == [0, 1, 2] and not _threads()


def test_an_early_stop_ends_the_thread():
  items = prefetch(lambda i: i, range(10**6))
  assert next(items) == 0
  items.close()
  assert not _threads()
