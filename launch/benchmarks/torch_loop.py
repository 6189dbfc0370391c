"""What the PyTorch sides of `launch/benchmarks/benchmark.py` have in common: batches without end, timed."""

import abc
import itertools
import time
from collections.abc import Iterator

import numpy as np

from launch.benchmarks.workload import Load, Workload


class TorchLoop(abc.ABC):
  """Batches of a workload's examples in random order; a subclass says what a step and its load are.

  Attributes:
    work: the workload; its numbers come before PyTorch's own.
    size: examples a batch.
    whole: what one epoch costs, once `measure_epoch` has counted it.

  """

  name = "torch"

  def __init__(self, work: Workload, size: int, threads: int):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    self.work, self.size = work, size
    self.lengths = np.diff(work.offsets)
    self._stream: Iterator[np.ndarray] | None = None

  @abc.abstractmethod
  def step(self, examples: np.ndarray) -> object:
    """One step on the examples of these numbers."""

  @abc.abstractmethod
  def load(self, examples: np.ndarray) -> Load:
    """What a batch costs."""

  def plan(self, epoch: int) -> list[np.ndarray]:
    """The examples of each batch of an epoch, in random order."""
    order = np.random.default_rng((7, epoch)).permutation(len(self.work.members))
    return [order[at : at + self.size] for at in range(0, len(order), self.size)]

  def measure_epoch(self) -> None:
    """Counts what an epoch costs (`whole`)."""
    self.whole = sum((self.load(examples) for examples in self.plan(1)), Load())

  def block(self, seconds: float) -> tuple[Load, float]:
    """Runs for about `seconds`, at least one step: the work done and the time it took."""
    self._stream = self._stream or (b for e in itertools.count(1) for b in self.plan(e))
    done, began = Load(), time.perf_counter()
    while not done.examples or time.perf_counter() - began < seconds:
      examples = next(self._stream)
      self.step(examples)
      done += self.load(examples)
    return done, time.perf_counter() - began
