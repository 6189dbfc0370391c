"""Sentence encoders that are compared by a distance: the shared part of ASBERT's two networks."""

from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float, Int

from as2jax.data.batch import Batch
from as2jax.encoders.pooling import MODES, AttentionPooling, pool
from as2jax.errors import InputError

DISTANCES = ("euclidean", "cosine")


@struct.dataclass
class Embeddings:
  """One vector a unit, zero for unused slots."""

  units: Float[Array, "s u d"]


def take(units: Float[Array, "s u d"], members: Int[Array, "s e"]) -> Float[Array, "s e d"]:
  """The vectors that examples point to; indices are local to their shard."""
  return jnp.take_along_axis(units, members[..., None], axis=1)


def norm(x: Float[Array, "*n d"]) -> Float[Array, "*n"]:
  """Euclidean norm over the last axis with gradient 0 (not nan) at the zero vector.

  The norm of a vector with NaN is NaN: as 0 it would be the best of all distances.
  """
  squared = jnp.sum(jnp.square(x), axis=-1)
  zero = squared == 0  # not its negation `squared > 0`, which is false for NaN, too
  return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, squared)))


def cosine(u: Float[Array, "*n d"], v: Float[Array, "*n d"]) -> Float[Array, "*n"]:
  """Cosine similarity; 0 where either vector is zero."""
  length = norm(u) * norm(v)
  return jnp.sum(u * v, axis=-1) / jnp.where(length > 0, length, 1.0)


class BiEncoder(nn.Module):
  """A language model and a pooling P1: sentence → vector (ASBERT figure 1).

  Attributes:
    encoder: LM, behind the encoder contract.
    pooling: `mean` (special tokens in, padding out), `max`, `cls`, `cls_last` or `attention`.
    score: what ranks at evaluation: `euclidean` (−‖u−v‖) or `cosine`; the others are reported
      beside it.
  """

  encoder: nn.Module
  pooling: str
  score: str

  template: ClassVar[str] = "single"
  layout: ClassVar[str] = "pairs"
  encodes: ClassVar[bool] = True
  score_names: ClassVar[tuple[str, ...]] = DISTANCES

  def setup(self):
    if self.pooling not in MODES + ("attention",):
      raise InputError(f"model.pooling = {self.pooling!r}: use one of {MODES + ('attention',)}")
    if self.score not in self.score_names:
      raise InputError(f"model.score = {self.score!r}: use one of {self.score_names}")
    if self.pooling == "attention":
      self.attention_pooling = AttentionPooling()

  def encode(self, batch: Batch, *, train: bool) -> Embeddings:
    """The vector of each unit, float32."""
    hidden = self.encoder(batch.tokens, train=train)
    if self.pooling == "attention":
      return Embeddings(self.attention_pooling(hidden, batch.tokens, batch.units))
    return Embeddings(pool(hidden, batch.tokens, batch.units, self.pooling))

  def compare(self, pair: tuple[Array, Array], *, train: bool) -> dict[str, Array]:
    """Scores (higher is better) of questions `[p, d]` with candidates `[p, d]`, by name."""
    del train
    return self.distances(*pair)

  def distances(self, question: Float[Array, "*n d"],
                candidate: Float[Array, "*n d"]) -> dict[str, Array]:
    return {"euclidean": -norm(question - candidate), "cosine": cosine(question, candidate)}

  def __call__(self, batch: Batch, *, train: bool) -> Embeddings:
    """An encoder alone: the untrained baselines MEAN-BERT and CLS-BERT."""
    return self.encode(batch, train=train)
