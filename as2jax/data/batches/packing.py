"""Packing of units into rows of fixed length."""

import numpy as np


def pack(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray, int]:
  """Packs units into as few rows as best-fit decreasing finds (at most 11/9 of the optimum + 1).

  Args:
    lengths: tokens of each unit, `[n]`, each between 1 and `row_length`.
    row_length: tokens a row holds.

  Returns:
    The row of each unit `[n]`, its first position there `[n]`, and the number of rows. A pure
    function of its arguments: ties keep the order given.

  """
  n = len(lengths)
  row, start = np.zeros(n, np.int32), np.zeros(n, np.int32)
  by_free: list[list[int]] = [[] for _ in range(row_length + 1)]
  occupied = 0  # bit f is set where some row has exactly f free tokens: best fit is one bit scan
  used = 0
  for i in np.argsort(-np.asarray(lengths), kind="stable").tolist():
    need = int(lengths[i])
    if not 1 <= need <= row_length:
      raise ValueError(f"unit {i} has {need} tokens; a row holds 1 to {row_length}")
    fitting = occupied >> need
    if fitting:
      free = need + (fitting & -fitting).bit_length() - 1
      r = by_free[free].pop()
      if not by_free[free]:
        occupied &= ~(1 << free)
    else:
      r, free, used = used, row_length, used + 1
    row[i], start[i] = r, row_length - free
    by_free[free - need].append(r)
    occupied |= 1 << (free - need)
  return row, start, used


def pack_alike(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """What `pack` gives for each of several sets of equally many units, all sets at once.

  Args:
    lengths: tokens of each unit of each set, `[sets, n]`, each between 1 and `row_length`.
    row_length: tokens a row holds.

  Returns:
    The row of each unit `[sets, n]`, its first position there `[sets, n]`, and the rows of each set.

  """
  sets, n = lengths.shape
  row, start = np.zeros((sets, n), np.int32), np.zeros((sets, n), np.int32)
  order = np.argsort(-lengths, axis=1, kind="stable")
  needs = np.take_along_axis(lengths, order, 1)
  # Two rows hold more than one can, so that no more are opened than this.
  rows = 2 * int(lengths.sum(axis=1).max(initial=0)) // row_length + 2
  # The least key among the rows with room is that of the least room, of these that of the row which
  # was used last, of rows that are not open that of the first; it says which row that is.
  room, every = rows * (n + 2), np.arange(sets)
  keys = np.broadcast_to(row_length * room + np.arange(rows)[:, None], (rows, sets)).copy()
  for turn in range(n):
    need = needs[:, turn]
    key = np.where(keys >= (need - 1) * room + rows, keys, (row_length + 1) * room).min(axis=0)
    chosen, free = key % rows, -(-(key // rows * rows) // room)
    keys[chosen, every] = (free - need) * room - (turn + 1) * rows + chosen
    row[every, order[:, turn]] = chosen
    start[every, order[:, turn]] = row_length - free
  return row, start, row.max(axis=1, initial=-1) + 1


def one_a_row(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray, int]:
  """The unpacked case of `pack`: every unit has a row of its own."""
  if len(lengths) and int(np.max(lengths)) > row_length:
    raise ValueError(f"a unit has {int(np.max(lengths))} tokens; a row holds {row_length}")
  return np.arange(len(lengths), dtype=np.int32), np.zeros(len(lengths), np.int32), len(lengths)
