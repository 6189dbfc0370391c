"""python -m launch.benchmarks.search --pool=5000000 --dimension=512: exact search of a made-up pool.

The pool is drawn from a seed block by block as it is searched, so that neither memory nor disk holds
it; what drawing takes is measured apart. With --file=x.npy a pool `[n, d]` is read from disk
instead, memory-mapped; with --memory either pool lies in memory. What a sweep of a file or of memory
reads a second is compared with what a copy of the pool does. Prints queries a second, and the memory
of the process at its highest.
"""

import argparse
import resource
import time
from collections.abc import Sequence

import jax
import numpy as np

from as2jax.evaluation import exact_search
from as2jax.runtime import sharding

SEED_ROWS = 1 << 16  # drawn once; blocks of the pool are these rows, shifted and scaled


class SyntheticPool:
  """A pool `[n, d]` of normal numbers, made row by row from a table of 65,536 rows and a seed.

  Row i is the table's row i mod 65,536 with its numbers turned round by i div 65,536, so that all
  rows of a pool of up to 65,536 · d differ and a row is the same whenever it is asked for.
  """

  def __init__(self, count: int, dimension: int, seed: int = 0):
    self.shape = (count, dimension)
    self.seconds = 0.0
    random = np.random.default_rng(seed)
    rows = min(SEED_ROWS, count)
    self.table = random.standard_normal((rows, dimension), np.float32)

  def __getitem__(self, rows: slice) -> np.ndarray:
    started = time.monotonic()
    start, stop, _ = rows.indices(self.shape[0])
    block = np.empty((stop - start, self.shape[1]), np.float32)
    at = start
    while at < stop:
      turn, first = divmod(at, len(self.table))
      size = min(stop - at, len(self.table) - first)
      block[at - start : at - start + size] = np.roll(
        self.table[first : first + size], turn, axis=1
      )
      at += size
    self.seconds += time.monotonic() - started
    return block


def read_per_second(pool: np.ndarray, often: int = 5) -> float:
  """GB of a pool that numpy's copy reads a second, the median of some times: what memory allows."""
  copy = np.empty_like(pool)
  seconds = []
  for _ in range(often):
    started = time.monotonic()
    np.copyto(copy, pool)
    seconds.append(time.monotonic() - started)
  return pool.nbytes / 1e9 / sorted(seconds)[often // 2]


def measure(pool: exact_search.Rows, *, queries: int, k: int, rows: int, ranks: bool) -> dict:
  """Seconds, queries a second and memory of one search; compilation is not counted."""
  searcher = exact_search.Searcher(sharding.make_mesh(), k=k, rows=rows, queries=min(queries, 512))
  asked = np.random.default_rng(1).standard_normal((queries, pool.shape[1]), np.float32)
  right = [[[i % pool.shape[0]] for i in range(queries)]] if ranks else None
  warm = SyntheticPool(min(pool.shape[0], rows), pool.shape[1])
  searcher(asked, warm, right=[[[0]] * queries] if ranks else None)
  before = getattr(pool, "seconds", 0.0)
  started = time.monotonic()
  searcher(asked, pool, right=right)
  seconds = time.monotonic() - started
  copied = read_per_second(pool) if isinstance(pool, np.ndarray) else 0.0
  sweeps = 2 if ranks else 1
  read = sweeps * 4e-9 * np.prod(pool.shape) / seconds
  return {
    "queries": queries,
    **({"read_gb_per_second": read, "of_a_copy": read / copied} if copied else {}),
    "pool": pool.shape[0],
    "dimension": pool.shape[1],
    "k": k,
    "sweeps": sweeps,
    "seconds": seconds,
    "queries_per_second": queries / seconds,
    "seconds_making_the_pool": getattr(pool, "seconds", 0.0) - before,
    "gflop_per_second": sweeps * 2e-9 * queries * np.prod(pool.shape) / seconds,
    "pool_mb": np.prod(pool.shape) * 4 / 1e6,
    "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    "devices": jax.device_count(),
    "backend": jax.default_backend(),
    "compilations": searcher.compilations,
  }


def main(arguments: Sequence[str] | None = None) -> None:
  """Prints one line a fact."""
  parser = argparse.ArgumentParser(
    prog="python -m launch.benchmarks.search",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("--pool", type=int, default=100_000, help="entries")
  parser.add_argument("--dimension", type=int, default=512)
  parser.add_argument("--queries", type=int, default=256)
  parser.add_argument("--k", type=int, default=100)
  parser.add_argument(
    "--rows", type=int, default=exact_search.ROWS, help="of the pool a device and block"
  )
  parser.add_argument("--ranks", action="store_true", help="of right answers, too: two sweeps")
  parser.add_argument("--file", help="a pool to read: .npy of float32 [n, d]")
  parser.add_argument("--memory", action="store_true", help="the pool lies in memory")
  flags = parser.parse_args(arguments)
  pool: exact_search.Rows = SyntheticPool(flags.pool, flags.dimension)
  if flags.file:
    pool = np.load(flags.file, mmap_mode=None if flags.memory else "r")
  elif flags.memory:
    pool = pool[:]
  figures = measure(pool, queries=flags.queries, k=flags.k, rows=flags.rows, ranks=flags.ranks)
  for name, value in figures.items():
    print(f"{name:24s} {value:,.1f}" if isinstance(value, float) else f"{name:24s} {value}")


if __name__ == "__main__":
  main()
