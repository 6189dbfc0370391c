"""ASBERT: siamese and triplet networks on a pretrained language model (Shonibare 2021)."""

from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Batch
from as2jax.layers.vectors import take
from as2jax.models.biencoder import DISTANCES, BiEncoder
from as2jax.models.system import Judged, Layout
from as2jax.runtime.registry import OneOf

COMBINATIONS = {
  "concat_diff": lambda u, v: (u, v, jnp.abs(u - v)),
  "abs_diff": lambda u, v: (jnp.abs(u - v),),
  "product": lambda u, v: (u * v,),
  "concat": lambda u, v: (u, v),
}


@struct.dataclass
class TripletOutput:
  """Of (question, positive) and (question, negative): scores and squared Euclidean distances."""

  scores: Float[Array, "s e 2"]
  squared_distances: Float[Array, "s e 2"]


class Triplet(BiEncoder):
  """Is ASBERT's triplet network (section 3.2): three copies of LM-P1 with shared weights.

  >>> from as2jax.config import jobs
  >>> jobs.load("wikiqa_triplet").loss.margin
  5.0
  """

  layout: ClassVar[Layout] = "triplets"

  def __call__(self, batch: Batch, *, train: bool) -> TripletOutput:
    units = self.encode(batch, train=train).units
    anchor, positive, negative = (take(units, batch.examples.members[..., k]) for k in range(3))
    scores, squared = [], []
    for other in (positive, negative):
      scores.append(self.compare((anchor, other), train=train)[self.ranking_score])
      squared.append(jnp.sum(jnp.square(anchor - other), -1))
    return TripletOutput(jnp.stack(scores, axis=-1), jnp.stack(squared, axis=-1))


class Siamese(BiEncoder):
  """Is ASBERT's siamese network (section 3.1): P2 combines u and v, one linear layer gives ŷ.

  `combine` is P2: `concat_diff` [u; v; |u−v|], `abs_diff` |u−v|, `product` u⊙v or `concat` [u; v];
  `score` `euclidean` (the paper keeps only the encoder), `cosine`, or `head` (the logit of ŷ).

  >>> from as2jax.config import jobs
  >>> jobs.load("wikiqa_siamese").model.combine
  'concat_diff'
  """

  combine: Annotated[str, OneOf(tuple(COMBINATIONS))]

  score_names: ClassVar[tuple[str, ...]] = DISTANCES + ("head",)

  def setup(self):
    super().setup()
    self.head = nn.Dense(1, precision=jax.lax.Precision.HIGHEST)

  def compare(self, pair: tuple[Array, Array], *, train: bool) -> dict[str, Array]:
    parts = COMBINATIONS[self.combine](*pair)
    logits = self.head(jnp.concatenate(parts, axis=-1))[..., 0]
    return {**super().compare(pair, train=train), "head": logits}

  def __call__(self, batch: Batch, *, train: bool) -> Judged:
    units = self.encode(batch, train=train).units
    pair = tuple(take(units, batch.examples.members[..., k]) for k in range(2))
    scores = self.compare(pair, train=train)
    return Judged(scores[self.ranking_score], scores["head"])
