"""Bi-encoders: sentence encoders compared by a distance, plain or published (Sentence-BERT)."""

import dataclasses
from typing import Annotated, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Batch
from as2jax.layers.pooling import MODES, AttentionPooling, pool
from as2jax.layers.vectors import apply_layer, cosine, norm, normalize, take
from as2jax.models.system import Embeddings, PublishedForm, System
from as2jax.runtime.registry import Each, OneOf

DISTANCES = ("euclidean", "cosine")


@struct.dataclass
class BiEncoderOutput:
  """The vector of each unit, and the score that ranks of each example (question, candidate)."""

  units: Float[Array, "s u d"]
  scores: Float[Array, "s e"]


class BiEncoder(System):
  """Encodes a sentence by a language model and a pooling P1 (ASBERT figure 1).

  `pooling` is `mean` (special tokens in, padding out), `max`, `cls`, `cls_last` or `attention`;
  `score` what ranks at evaluation: `euclidean` (−‖u−v‖) or `cosine`, reported beside it.

  >>> from as2jax.config import jobs
  >>> jobs.load("recommended:fast,minilm").model.to_dict()
  {'name': 'biencoder', 'pooling': 'mean', 'score': 'cosine'}
  """

  encoder: nn.Module
  pooling: Annotated[str, OneOf((*MODES, "attention"))]
  score: str = dataclasses.field()

  encodes: ClassVar[bool] = True
  score_names: ClassVar[tuple[str, ...]] = DISTANCES

  def setup(self):
    if self.pooling == "attention":
      self.attention_pooling = AttentionPooling()

  def encode(self, batch: Batch, *, train: bool) -> Embeddings:
    hidden = self.encoder(batch.tokens, train=train)
    if self.pooling == "attention":
      return Embeddings(self.attention_pooling(hidden, batch.tokens, batch.units))
    return Embeddings(pool(hidden, batch.tokens, batch.units, self.pooling))

  def compare(self, pair: tuple[Array, Array], *, train: bool) -> dict[str, Array]:
    question, candidate = pair
    return {"euclidean": -norm(question - candidate), "cosine": cosine(question, candidate)}

  @nn.nowrap
  def published_form(self) -> PublishedForm | None:
    """Return a sentence transformer; None for a subclass that encodes in another way."""
    if type(self).encode is not BiEncoder.encode:
      return None
    score = self.score if self.score in DISTANCES else DISTANCES[0]  # of the vectors alone
    return PublishedForm("sentence_transformer", score, pooling=(self.pooling,))

  def __call__(self, batch: Batch, *, train: bool) -> BiEncoderOutput:
    units = self.encode(batch, train=train).units
    ends = (take(units, batch.examples.members[..., k]) for k in (0, -1))
    return BiEncoderOutput(units, self.compare(tuple(ends), train=train)[self.ranking_score])


class SentenceBert(BiEncoder):
  """Encodes a sentence by a language model, poolings, dense layers and a normalisation.

  `as2jax.encoders.sentence_folder.read` gives all fields but `encoder` and `score` (`euclidean`,
  `cosine` or `dot`): `pooling`, modes whose vectors are joined in this order, and (size,
  activation, whether it has a bias) of each layer of `dense`. Products with these have the highest
  precision.

  >>> from as2jax.config import jobs
  >>> jobs.load("recommended:embedder").encoder.pretrained
  'sentence-transformers/bert-base-nli-mean-tokens'
  """

  pooling: Annotated[tuple[str, ...], Each(OneOf(MODES))]
  dense: tuple[tuple[int, str, bool], ...]
  normalize: bool

  score_names: ClassVar[tuple[str, ...]] = (*DISTANCES, "dot")

  def compare(self, pair: tuple[Array, Array], *, train: bool) -> dict[str, Array]:
    question, candidate = pair
    return {**super().compare(pair, train=train), "dot": jnp.sum(question * candidate, -1)}

  @nn.nowrap
  def published_form(self) -> PublishedForm | None:
    if type(self).encode is not SentenceBert.encode:
      return None
    head = {"pooling": self.pooling, "dense": self.dense, "normalize": self.normalize}
    head["from_sentence_folder"] = True
    return PublishedForm("sentence_transformer", self.ranking_score, **head)

  @nn.compact
  def encode(self, batch: Batch, *, train: bool) -> Embeddings:
    hidden = self.encoder(batch.tokens, train=train)
    x = jnp.concatenate(
      [pool(hidden, batch.tokens, batch.units, mode) for mode in self.pooling], axis=-1
    )
    for number, layer in enumerate(self.dense):
      x = apply_layer(("dense", *layer), f"dense_{number}", x)
    if self.normalize:
      x = normalize(x)
    return Embeddings(jnp.where((batch.units.length > 0)[..., None], x, 0.0))
