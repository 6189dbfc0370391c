"""Cross-VAEs in PyTorch with `torch.nn.GRU` and one softmax over all words: the benchmark's reference.

The softmax is computed at the words that are predicted, so padding costs the GRUs alone. The backward
direction of an encoder must not read padding before the text: packed sequences, or each text turned
round (`WAYS`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from as2jax.layers.recurrent import to_torch
from as2jax.models.cross_vae import SIDES, SOURCES
from as2jax.runtime.errors import InputError

WAYS = ("packed", "turned")  # of reading a padded text backward
UNKNOWN = 1


class TextEncoder(nn.Module):
  """GRU in both directions, self-attention with hops, μ and log σ²."""

  def __init__(self, model: Mapping[str, Any], width: int, way: str):
    super().__init__()
    hidden, self.way = model["hidden_size"], way
    self.gru = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
    self.hidden = nn.Linear(2 * hidden, model["attention_size"], bias=False)
    self.hops = nn.Linear(model["attention_size"], model["hops"], bias=False)
    for name in ("mean", "log_variance"):
      setattr(self, name, nn.Linear(2 * hidden * model["hops"], model["latent_size"]))

  def forward(self, x: torch.Tensor, length: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    place = torch.arange(x.shape[1])
    real = place < length[:, None]
    if self.way == "packed":
      packed = nn.utils.rnn.pack_padded_sequence(x, length, batch_first=True, enforce_sorted=False)
      h = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0]
    else:
      h = self._turned(x, torch.where(real, length[:, None] - 1 - place, place))
    scores = self.hops(torch.tanh(self.hidden(h))).masked_fill(~real[..., None], -1e30)
    pooled = (scores.softmax(1).transpose(1, 2) @ h).flatten(1)
    return self.mean(pooled), self.log_variance(pooled)

  def _turned(self, x: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
    weights, g = self.gru._flat_weights, self.gru
    zero = x.new_zeros(1, len(x), g.hidden_size)
    run = lambda x, w: torch.gru(x, zero, w, True, 1, 0.0, self.training, False, True)[0]
    turn = lambda x: x.gather(1, back[..., None].expand(-1, -1, x.shape[-1]))
    return torch.cat([run(x, weights[:4]), turn(run(turn(x), weights[4:]))], -1)


class Decoder(nn.Module):
  """GRU that reads the words and z, from z; scores over all words."""

  def __init__(self, model: Mapping[str, Any], width: int):
    super().__init__()
    size = model["decoder_size"]
    self.start = nn.Linear(model["latent_size"], size)
    self.gru = nn.GRU(width + model["latent_size"], size, batch_first=True)
    self.bias = nn.Parameter(torch.zeros(model["output_size"]))
    if not model["tied"]:
      self.words = nn.Parameter(torch.randn(model["output_size"], size) * 0.02)
    elif size != width:
      self.width = nn.Linear(size, width)

  def forward(
    self,
    z: torch.Tensor,
    read: torch.Tensor,
    target: torch.Tensor,
    predicted: torch.Tensor,
    table: torch.Tensor,
  ) -> torch.Tensor:
    """−log p of the words that are `predicted`, summed over all of them."""
    x = torch.cat([read, z[:, None].expand(-1, read.shape[1], -1)], -1)
    h = self.gru(x, torch.tanh(self.start(z))[None])[0][predicted]
    if hasattr(self, "width"):
      h = self.width(h)
    kernel = self.words if hasattr(self, "words") else table
    return functional.cross_entropy(
      functional.linear(h, kernel, self.bias), target[predicted], reduction="sum"
    )


class CrossVAE(nn.Module):
  """Cross-VAEs or Dual-VAEs with GRU decoders, and their loss."""

  def __init__(
    self, model: Mapping[str, Any], loss: Mapping[str, Any], rows: int, width: int, way: str
  ):
    super().__init__()
    if model["crossing"] == "none" or model["decoder"] != "gru" or loss["negatives"] != "in_batch":
      raise InputError("the PyTorch side has GRU decoders and in-batch negatives alone")
    self.settings, self.weights = model, loss
    self.table = nn.Embedding(rows, width)
    self.encoders = nn.ModuleDict({side: TextEncoder(model, width, way) for side in SIDES})
    self.decoders = nn.ModuleDict({side: Decoder(model, width) for side in SIDES})
    self.scale = nn.Parameter(torch.tensor(float(model["match_scale"])))
    self.bias = nn.Parameter(torch.tensor(float(model["match_bias"])))

  def loss(
    self,
    ids: Mapping[str, torch.Tensor],
    length: Mapping[str, torch.Tensor],
    same: torch.Tensor,
    share: float,
  ) -> torch.Tensor:
    """The loss of a batch of aligned pairs: padded ids [n, l] and lengths [n] of each side.

    `same` [n, n]: pairs that are no negatives (its diagonal is the pairs themselves). `share` is
    that of the KL after annealing. Without `training` z = μ and no word is dropped.
    """
    model, weights, n = self.settings, self.weights, len(same)
    z, total = {}, 0.0
    for side in SIDES:
      mean, log_variance = self.encoders[side](self.table(ids[side]), length[side])
      noise = torch.randn_like(mean) if self.training else torch.zeros_like(mean)
      z[side] = mean + torch.exp(log_variance / 2) * noise
      kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
      total = total + weights["beta"] * share * kl / n
    for side, source in SOURCES[model["crossing"]].items():
      read, target = ids[side][:, :-1], ids[side][:, 1:]
      predicted = torch.arange(1, ids[side].shape[1]) < length[side][:, None]
      predicted &= (target < model["output_size"]) & (target != UNKNOWN)
      if self.training and model["word_dropout"]:
        drop = (torch.rand(read.shape) < model["word_dropout"]) & (read != model["marks"][0])
        read = read.masked_fill(drop, UNKNOWN)
      total = total + weights["alpha"] / n * self.decoders[side](
        z[source], self.table(read), target, predicted, self.table.weight[: model["output_size"]]
      )
    unit = lambda x: functional.normalize(x, dim=-1, eps=1e-30)
    logits = self.scale * (unit(z["question"]) @ unit(z["answer"]).T) + self.bias
    negative = functional.softplus(logits)[~same].mean() if not same.all() else 0.0
    positive = functional.softplus(-logits.diagonal()).mean()
    return total + weights["gamma"] / 2 * (positive + negative)


def to_state(params: Mapping[str, Any]) -> dict[str, torch.Tensor]:
  """Our parameters as the state of `CrossVAE`."""
  linear = lambda prefix, its: (
    {f"{prefix}.weight": np.asarray(its["kernel"]).T}
    | ({f"{prefix}.bias": its["bias"]} if "bias" in its else {})
  )
  actual = {
    "table.weight": params["encoder"]["embeddings"]["word"],
    "scale": params["match_scale"],
    "bias": params["match_bias"],
  }
  for side in SIDES:
    its, prefix = params[f"{side}_encoder"], f"encoders.{side}"
    actual |= to_torch(its["gru"], f"{prefix}.gru.")
    for name in ("hidden", "hops"):
      actual |= linear(f"{prefix}.{name}", its["attention"][name])
    for name in ("mean", "log_variance"):
      actual |= linear(f"{prefix}.{name}", its[name])
    its, prefix = params[f"{side}_decoder"], f"decoders.{side}"
    actual |= linear(f"{prefix}.start", its["start"]) | to_torch(its["layer"], f"{prefix}.gru.")
    actual[f"{prefix}.bias"] = its["words"]["bias"]
    if "words" in its["words"]:
      actual[f"{prefix}.words"] = its["words"]["words"]
    if "width" in its["words"]:
      actual |= linear(f"{prefix}.width", its["words"]["width"])
  return {name: torch.tensor(np.array(value)) for name, value in actual.items()}
