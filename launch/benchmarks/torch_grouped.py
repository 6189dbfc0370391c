"""A PyTorch loop over triplets with our own savings: whole questions, each sentence encoded once."""

from collections.abc import Sequence

import numpy as np
import torch

from launch.benchmarks.torch_side import Bert


class Grouped(Bert):
  """Triplets of whole questions: each sentence of a batch is encoded once, beside others of its length.

  This is what our `grouped` sampler does, written in PyTorch. A choice says how many sentences, sorted by
  length, are padded together.
  """

  name = "torch-grouped"
  batch_size = 96  # triplets: about as many as our batches have

  def choices(self) -> Sequence[str]:
    """Either attention; forward passes of 16, 32 or 64 sentences."""
    return [f"{kind}, {n} sentences" for kind in ("sdpa", "eager") for n in (16, 32, 64)]

  def plan(self, epoch: int) -> list[np.ndarray]:
    """Batches of whole questions, in random order, each of at least `batch_size` triplets."""
    anchors = self.work.members[:, 0]
    order = np.argsort(anchors, kind="stable")
    _, starts = np.unique(anchors[order], return_index=True)
    questions = np.split(order, starts[1:])
    batches, batch = [], []
    for number in np.random.default_rng((7, epoch)).permutation(len(questions)):
      batch.append(questions[number])
      if sum(map(len, batch)) >= self.batch_size:
        batches.append(np.concatenate(batch))
        batch = []
    return batches + ([np.concatenate(batch)] if batch else [])

  def _passes(self, members: np.ndarray) -> list[np.ndarray]:
    """The distinct units of a batch, sorted by length and cut into forward passes."""
    units = np.unique(members)
    units = units[np.argsort(-self.lengths[units], kind="stable")]
    size = int(self.choice.split()[1])
    return [units[at : at + size] for at in range(0, len(units), size)]

  def loss(self, examples: np.ndarray) -> torch.Tensor:
    """The sum of the hinges of all triplets, over vectors that are computed once."""
    members = self.work.members[examples]
    passes = self._passes(members)
    row = np.zeros(len(self.lengths), np.int64)
    row[np.concatenate(passes)] = np.arange(sum(map(len, passes)))
    vectors = torch.cat([self.encode(units) for units in passes])
    return self.hinges(*vectors[torch.from_numpy(row[members])].unbind(1))

  def rows(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each forward pass is padded to its longest sentence."""
    passes = self._passes(self.work.members[examples])
    padded = [np.full(len(units), self.lengths[units].max()) for units in passes]
    return self.lengths[np.concatenate(passes)], np.concatenate(padded)
