"""python -m launch.benchmarks.metrics_log: what a flush of `metrics.jsonl` takes, by its length."""

import tempfile
import time

from as2jax.training.metrics_log import MetricsLog

ROW = {"loss": 0.25, "gradient_norm": 1.5, "rate": 2e-5, "seconds_per_step": 0.125}
FLUSHES = 50


def main() -> None:
  """Prints the median milliseconds of a flush of one row after 10^2 to 10^5 rows."""
  with tempfile.TemporaryDirectory() as folder:
    log, step = MetricsLog(folder, tensorboard=False), 0
    for length in (100, 1_000, 10_000, 100_000):
      while step < length:
        step += 1
        log.write(0, step, ROW)
      log.flush()
      seconds = []
      for _ in range(FLUSHES):
        log.write(0, step, ROW)
        began = time.perf_counter()
        log.flush()
        seconds.append(time.perf_counter() - began)
      print(f"{length:7,d} rows: {1e3 * sorted(seconds)[FLUSHES // 2]:.3f} ms a flush")


if __name__ == "__main__":
  main()
