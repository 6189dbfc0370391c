"""Sentence-BERT (Reimers & Gurevych 2019, section 3): a published encoder as a bi-encoder."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Batch
from as2jax.layers.pooling import MODES, pool
from as2jax.layers.vector_layers import ACTIVATIONS, normalize
from as2jax.models.biencoder import DISTANCES, BiEncoder
from as2jax.models.system import Embeddings, PublishedForm
from as2jax.runtime.errors import InputError


class SentenceBert(BiEncoder):
  """A language model, poolings, dense layers and a normalisation: sentence → vector.

  `as2jax.encoders.checkpoints.sentence_folder.read` gives all fields but `encoder` and `score`. Vectors are
  float32, and products with the dense layers have the highest precision.

  Attributes:
    pooling: modes of `as2jax.layers.pooling.pool`, whose vectors are joined in this order.
    dense: (size, activation, whether it has a bias) of each layer.
    normalize: whether vectors are brought to length 1.
    score: `euclidean` (−‖u−v‖), `cosine` or `dot`, as the folder was trained to be compared.

  """

  pooling: tuple[str, ...]
  dense: tuple[tuple[int, str, bool], ...]
  normalize: bool

  score_names: ClassVar[tuple[str, ...]] = (*DISTANCES, "dot")

  def setup(self):
    unknown = [mode for mode in self.pooling if mode not in MODES]
    if unknown or not self.pooling:
      raise InputError(f"model.pooling = {self.pooling!r}: use one or more of {MODES}")
    if self.score not in self.score_names:
      raise InputError(f"model.score = {self.score!r}: use one of {self.score_names}")
    for _, activation, _ in self.dense:
      if activation not in ACTIVATIONS:
        raise InputError(f"model.dense: {activation!r} is none of {', '.join(ACTIVATIONS)}")
    self.layers = [
      nn.Dense(size, use_bias=bias, precision=jax.lax.Precision.HIGHEST, name=f"dense_{i}")
      for i, (size, _, bias) in enumerate(self.dense)
    ]

  def distances(
    self, question: Float[Array, "*n d"], candidate: Float[Array, "*n d"]
  ) -> dict[str, Array]:
    return {**super().distances(question, candidate), "dot": jnp.sum(question * candidate, -1)}

  @nn.nowrap
  def published_form(self) -> PublishedForm | None:
    """The sentence-transformers folder that it was; None for a subclass that encodes otherwise."""
    if type(self).encode is not SentenceBert.encode:
      return None
    return PublishedForm(
      "sentence_transformer",
      self.score,
      pooling=self.pooling,
      dense=self.dense,
      normalize=self.normalize,
      from_sentence_folder=True,
    )

  def encode(self, batch: Batch, *, train: bool) -> Embeddings:
    """The vector of each unit, float32, zero for unused slots."""
    hidden = self.encoder(batch.tokens, train=train)
    x = jnp.concatenate(
      [pool(hidden, batch.tokens, batch.units, mode) for mode in self.pooling], axis=-1
    )
    for layer, (_, activation, _) in zip(self.layers, self.dense):
      x = ACTIVATIONS[activation](layer(x))
    if self.normalize:
      x = normalize(x)
    return Embeddings(jnp.where((batch.units.length > 0)[..., None], x, 0.0))
