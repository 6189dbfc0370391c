"""Computes on the CPU what a jaxlib is known to have computed wrongly, and what is like it.

python wheel_program.py CASE...: names of functions below. It ends with status 1 and a line for each
wrong value. It imports jax and numpy alone, so that a wheel can be judged in an environment that
has nothing else; XLA_FLAGS decides what is fused (`as2jax.runtime.cpu_compiler`).
"""

import functools
import itertools
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

ROWS = (2**15, 2**15 + 1)  # jaxlib 0.10.2 was wrong after 2**15 rows of float32
SIZES = (2, 3, 4)  # of the square matrix; only 3 was seen to be wrong
# Each takes a reduction (of an array, along an axis), a matrix [k, k] and rows [n, k].
PRODUCTS = {
  "vmap(matrix @ row)": lambda reduce, matrix, rows: jax.vmap(lambda row: reduce(matrix @ row, -1))(
    rows
  ),
  "vmap(row @ matrix)": lambda reduce, matrix, rows: jax.vmap(
    lambda row: reduce(row @ matrix.T, -1)
  )(rows),
  "vmap(sum(matrix * row))": lambda reduce, matrix, rows: jax.vmap(
    lambda row: reduce((matrix * row).sum(-1), -1)
  )(rows),
  "rows @ matrix": lambda reduce, matrix, rows: reduce(rows @ matrix.T, -1),
  "matrix @ rows": lambda reduce, matrix, rows: reduce(matrix @ rows.T, 0),
}
# Each takes numpy, or jax.numpy.
REDUCTIONS = {
  "sum": lambda xp, x, axis: xp.sum(x, axis),
  "sum of squares": lambda xp, x, axis: xp.sum(x**2, axis),
  "mean of absolutes": lambda xp, x, axis: xp.mean(abs(x), axis),
  "max": lambda xp, x, axis: xp.max(x, axis),
}


def sweep() -> Iterator[str]:
  """Products with reductions, in float32, beside float64 in numpy."""
  rng = np.random.default_rng(0)
  for size, count in itertools.product(SIZES, ROWS):
    rows = rng.normal(size=(count, size)).astype(np.float32)
    matrix = rng.normal(size=(size, size)).astype(np.float32)
    for (product, multiply), (reduction, reduce) in itertools.product(
      PRODUCTS.items(), REDUCTIONS.items()
    ):
      actual = jax.jit(functools.partial(multiply, functools.partial(reduce, jnp)))(matrix, rows)
      right = reduce(np, rows.astype(np.float64) @ matrix.T.astype(np.float64), -1)
      error = np.max(np.abs(actual - right)) / np.max(np.abs(right))
      if not error < 1e-5:
        yield f"{product}, {reduction}, k = {size}, {count} rows: {error:.1e} of the greatest"


def product_then_reduction() -> Iterator[str]:
  """jax-ml/jax#39103: wrong values for the last rows."""
  for dtype, count in ((np.float32, 32_769), (np.float64, 16_385)):
    rows = np.zeros((count, 3), dtype)
    rows[:, 0] = np.arange(count)
    with jax.enable_x64(dtype is np.float64):
      matrix = jnp.eye(3, dtype=dtype)
      actual = jax.jit(jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2)))(rows)
    if not np.allclose(actual, rows[:, 0] ** 2):
      yield f"{dtype.__name__}: the last is {actual[-1]}, not {rows[-1, 0] ** 2}"


def eight_axes() -> Iterator[str]:
  """jax-ml/jax#39257: a crash, or no end."""

  def function(x, y):
    total = jnp.sum(x[..., None, None, None, None, None] * y, axis=2)
    return jnp.log(jnp.maximum(total, 2.220446049250313e-16))

  x, y = np.ones((10, 4, 6), np.float32), np.ones((10, 4, 6, 9, 9, 9, 9, 9), np.float32)
  if not np.allclose(jax.jit(function)(x, y), np.log(6)):
    yield "not log 6"


def seven_axes_one_of_size_1() -> Iterator[str]:
  """jax-ml/jax#40412: a crash."""
  x, y = np.random.default_rng(0).normal(size=(2, 3, 1, 2, 2, 8, 8, 8)).astype(np.float32)
  if not np.allclose(jax.jit(lambda x, y: jnp.sum(x * y, axis=3))(x, y), (x * y).sum(3), atol=1e-5):
    yield "another sum than numpy's"


CASES = (product_then_reduction, eight_axes, seven_axes_one_of_size_1, sweep)


def main(*names: str) -> int:
  jax.config.update("jax_platforms", "cpu")
  cases = {case.__name__: case for case in CASES}
  wrong = [f"{name}: {line}" for name in names for line in cases[name]()]
  print(*wrong, sep="\n")
  return bool(wrong)


if __name__ == "__main__":
  sys.exit(main(*sys.argv[1:]))
