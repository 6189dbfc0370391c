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


def one_a_row(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray, int]:
  """The unpacked case of `pack`: every unit has a row of its own."""
  if len(lengths) and int(np.max(lengths)) > row_length:
    raise ValueError(f"a unit has {int(np.max(lengths))} tokens; a row holds {row_length}")
  return np.arange(len(lengths), dtype=np.int32), np.zeros(len(lengths), np.int32), len(lengths)
