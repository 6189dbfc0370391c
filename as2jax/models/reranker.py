"""A published cross-encoder with the head that its folder describes."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Batch
from as2jax.layers import vector_layers
from as2jax.layers.pooling import pool
from as2jax.layers.vectors import take
from as2jax.models.crossencoder import CrossEncoderOutput
from as2jax.models.system import Layout, PublishedForm, System, Template
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import Rate


class Reranker(System):
  """Question and candidate in one sequence, pooled, through the layers of a published head.

  `as2jax.encoders.checkpoints.published_head.read` gives `pooling` and `layers`. With one logit the
  score is that logit. With n it is the log-odds of class `label`, l_k − ln Σ_{j≠k} exp(l_j), which is
  l_1 − l_0 for two. Losses see two-way logits with the same probability of class `label`.

  Attributes:
    encoder: behind the encoder contract.
    pooling: modes of `as2jax.layers.pooling.pool`, whose vectors are joined in this order.
    layers: of `as2jax.layers.vector_layers`; the last is dense, with one output a class.
    label: the class that means that the candidate answers the question; 0 of one logit.
    dropout: on the last layer's input.

  """

  encoder: nn.Module
  pooling: tuple[str, ...]
  layers: tuple[tuple, ...]
  label: int
  dropout: Rate

  template: ClassVar[Template] = "pair"
  layout: ClassVar[Layout] = "single"
  score_names: ClassVar[tuple[str, ...]] = ("logit",)

  @nn.compact
  def __call__(self, batch: Batch, *, train: bool) -> CrossEncoderOutput:
    self._check()
    hidden = self.encoder(batch.tokens, train=train)
    units = jnp.concatenate(
      [pool(hidden, batch.tokens, batch.units, mode) for mode in self.pooling], axis=-1
    )
    x = take(units, batch.examples.members[..., 0]).astype(jnp.float32)
    for number, layer in enumerate(self.layers):
      if number == len(self.layers) - 1:
        x = nn.Dropout(self.dropout, deterministic=not train)(x)
      x = vector_layers.apply(layer, f"layer_{number}", x)
    logits = _two_way(x.astype(jnp.float32), self.label)
    return CrossEncoderOutput(logits[..., 1] - logits[..., 0], logits)

  @nn.nowrap
  def published_form(self) -> PublishedForm | None:
    """The folder that it was; None for a subclass that scores otherwise."""
    if type(self).__call__ is not Reranker.__call__:
      return None
    return PublishedForm(
      "reranker",
      self.ranking_score,
      pooling=self.pooling,
      layers=self.layers,
      dropout=self.dropout,
      label=self.label,
    )

  @nn.nowrap
  def _check(self) -> None:
    vector_layers.check(self.layers, "model.layers")
    if not self.layers or self.layers[-1][0] != "dense":
      raise InputError("model.layers: the last layer of a ranker is dense, with a row a class")
    classes = self.layers[-1][1]
    if not 0 <= self.label < classes:
      raise InputError(
        f"model.label = {self.label}: the head has {classes} classes; give the number of the one "
        f"that means 'answers the question', 0 to {classes - 1}"
      )


def _two_way(logits: Float[Array, "s e n"], label: int) -> Float[Array, "s e 2"]:
  """Logits of "any other class" and of class `label`, by which the softmax is the same."""
  own = logits[..., label]
  if logits.shape[-1] == 1:
    return jnp.stack([jnp.zeros_like(own), own], -1)
  others = jnp.concatenate([logits[..., :label], logits[..., label + 1 :]], -1)
  return jnp.stack([jax.nn.logsumexp(others, axis=-1), own], -1)
