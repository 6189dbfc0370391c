"""M²S-Net in PyTorch, written straightforwardly: the reference of tests and of the benchmark.

It knows no padding but in the similarities, which it multiplies by the mask: batch norm and pooling
see the whole grid. So it agrees with `as2jax.models.m2snet` where nothing is padded.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn


class M2SNet(nn.Module):
  """The network of a config's section `model`, over a table of word vectors [words, d]."""

  def __init__(self, settings: Mapping[str, Any], table: np.ndarray):
    super().__init__()
    self.similarity, modes, width = settings["similarity"], settings["modes"], table.shape[1]
    height, length = settings["question_length"], settings["candidate_length"]
    self.embedding = nn.Embedding.from_pretrained(torch.tensor(table), freeze=False)
    if self.similarity == "metric":
      noise = settings["noise"] * torch.randn(modes, width, width)
      self.U = nn.Parameter(torch.eye(width) / width**0.5 + noise)
      self.B = nn.Parameter(torch.zeros(modes, height, length))
    layers, channels = [], modes
    size, pool = settings["filter_size"], settings["pool_size"]
    for filters in settings["filters"]:
      layers += [
        nn.Conv2d(channels, filters, size, bias=False),
        nn.BatchNorm2d(filters, eps=settings["eps"], momentum=1 - settings["momentum"]),
        nn.Tanh(),
        nn.AvgPool2d(pool),
      ]
      channels = filters
      height, length = ((side - size + 1) // pool for side in (height, length))
    self.layers = nn.Sequential(*layers)
    self.hidden = nn.Linear(channels * height * length, settings["hidden_size"])
    self.dropout = nn.Dropout(settings["dropout"])
    self.head = nn.Linear(settings["hidden_size"] + 2, 1)

  def match(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Similarities [n, k, i, j] of token vectors [n, i, d] and [n, j, d]."""
    if self.similarity == "euclidean":
      return (1 / (1 + (x[:, :, None] - y[:, None]).norm(dim=-1)))[:, None]
    if self.similarity == "cosine":
      unit = nn.functional.normalize
      return (unit(x, dim=-1, eps=1e-30) @ unit(y, dim=-1, eps=1e-30).transpose(1, 2))[:, None]
    return (x[:, None] @ self.U) @ y[:, None].transpose(2, 3) + self.B

  def forward(
    self,
    questions: torch.Tensor,
    candidates: torch.Tensor,
    mask: torch.Tensor,
    features: torch.Tensor,
  ) -> torch.Tensor:
    """Logits [n] of word ids [n, i] and [n, j], pairs that are real [n, i, j], features [n, 2]."""
    grid = self.match(self.embedding(questions), self.embedding(candidates)) * mask[:, None]
    hidden = torch.tanh(self.hidden(self.layers(grid).flatten(1)))
    return self.head(torch.cat([self.dropout(hidden), features], dim=1))[:, 0]

  def penalty(self, weight: float) -> torch.Tensor | float:
    """λ(‖U‖² + ‖B‖²)."""
    if self.similarity != "metric":
      return 0.0
    return weight * (self.U.square().sum() + self.B.square().sum())

  def loss(self, labels: torch.Tensor, weight: float, *inputs: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the labels [n] with the penalty."""
    entropy = nn.functional.binary_cross_entropy_with_logits(self(*inputs), labels)
    return entropy + self.penalty(weight)


def to_state(params: Mapping[str, Any], statistics: Mapping[str, Any]) -> dict[str, torch.Tensor]:
  """Our parameters and `batch_stats` as the state of `M2SNet`."""
  actual = {"embedding.weight": params["encoder"]["embeddings"]["word"]}
  actual |= {name: params["grid"][name] for name in ("U", "B") if "grid" in params}
  for n in range(sum(name.startswith("convolution_") for name in params)):
    norm, running = params[f"norm_{n}"], statistics[f"norm_{n}"]
    actual[f"layers.{4 * n}.weight"] = np.transpose(
      params[f"convolution_{n}"]["kernel"], (3, 2, 0, 1)
    )
    actual |= {
      f"layers.{4 * n + 1}.weight": norm["scale"],
      f"layers.{4 * n + 1}.bias": norm["bias"],
      f"layers.{4 * n + 1}.running_mean": running["mean"],
      f"layers.{4 * n + 1}.running_var": running["var"],
      f"layers.{4 * n + 1}.num_batches_tracked": 0,
    }
  for name in ("hidden", "head"):
    actual[f"{name}.weight"] = np.transpose(params[name]["kernel"])
    actual[f"{name}.bias"] = params[name]["bias"]
  return {name: torch.tensor(np.array(value)) for name, value in actual.items()}


def inputs(batch: Any, lengths: tuple[int, int]) -> tuple[torch.Tensor, ...]:
  """One of our micro-batches `[1, …]`, one unit a row, as the arguments of `M2SNet.forward`."""
  examples, units = batch.examples, batch.units
  real = np.asarray(examples.mask[0]) > 0
  sides, counts = [], []
  for k, size in enumerate(lengths):
    member = np.asarray(examples.members[0, real, k])
    ids = np.asarray(batch.tokens.ids[0])[np.asarray(units.row[0])[member]][:, :size]
    sides.append(np.pad(ids, ((0, 0), (0, size - ids.shape[1]))))
    counts.append(np.minimum(np.asarray(units.length[0])[member], size))
  rows, columns = (np.arange(size) < count[:, None] for size, count in zip(lengths, counts))
  mask = rows[:, :, None] & columns[:, None]
  arrays = (
    *(side.astype(np.int64) for side in sides),
    mask.astype(np.float32),
    np.asarray(examples.inputs["word_overlap"][0, real]),
  )
  return tuple(map(torch.tensor, arrays))


def labels(batch: Any) -> torch.Tensor:
  """The labels of the real examples of `inputs`."""
  examples = batch.examples
  return torch.tensor(
    np.asarray(examples.labels[0, np.asarray(examples.mask[0]) > 0, 0]), dtype=torch.float32
  )
