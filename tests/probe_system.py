"""A small model that uses everything the loop offers: it proves the loop, not an idea.

Batch norm (running statistics), two loss terms of different reductions, a penalty, and a part that a
pattern can freeze.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Batch
from as2jax.layers.pooling import pool
from as2jax.layers.vectors import take
from as2jax.models.losses import Loss, Term
from as2jax.models.system import System


@struct.dataclass
class ProbeOutput:
  """Scores of (question, candidate) and the difference of their normalised vectors."""

  scores: Float[Array, "s e"]
  difference: Float[Array, "s e d"]


class Probe(System):
  """Mean of token vectors → batch norm over real units → dropout → linear map → dot product."""

  encoder: nn.Module
  width: int
  dropout: float

  score_names: ClassVar[tuple[str, ...]] = ("dot",)

  @nn.compact
  def __call__(self, batch: Batch, *, train: bool) -> ProbeOutput:
    units = pool(self.encoder(batch.tokens, train=train), batch.tokens, batch.units, "mean")
    real = (batch.units.length > 0)[..., None]
    units = nn.BatchNorm(use_running_average=not train, momentum=0.9, name="norm")(
      units, mask=jnp.broadcast_to(real, units.shape)
    )
    units = nn.Dropout(self.dropout, deterministic=not train)(jnp.where(real, units, 0.0))
    vectors = nn.Dense(self.width, name="map")(units)
    question, candidate = (take(vectors, batch.examples.members[..., k]) for k in range(2))
    return ProbeOutput(jnp.sum(question * candidate, -1), question - candidate)


@dataclasses.dataclass(frozen=True)
class ProbeLoss(Loss):
  """A mean of cross entropies, a scaled sum of distances that fades in, and an L2 penalty."""

  gamma: float
  weight: float

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    labels = batch.examples.labels[..., 0]
    mask = batch.examples.mask
    entropy = nn.softplus(output.scores) - output.scores * labels
    distance = jnp.sum(jnp.square(output.difference), -1) * jnp.minimum(progress, 1.0)
    return {
      "entropy": Term(entropy, mask),
      "distance": Term(distance, mask * labels, "sum", self.gamma),
    }

  def penalty(self, params) -> dict[str, Array]:
    return {"penalty": self.weight * jnp.sum(jnp.square(params["map"]["kernel"]))}
